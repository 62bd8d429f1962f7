package rpc

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

type (
	fakeSubscribeStream = grpc.BidiStreamingServer[tinybrokerv1.SubscribeRequest, tinybrokerv1.SubscribeResponse]
	fakePublishStream   = grpc.BidiStreamingServer[tinybrokerv1.PublishStreamRequest, tinybrokerv1.PublishStreamResponse]
)

// fakeBroker behaves as a test tells it to; n counts the calls, from 1.
type fakeBroker struct {
	tinybrokerv1.UnimplementedBrokerServiceServer
	subscribe func(n int, open *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error
	publish   func(n int, stream fakePublishStream) error

	mu    sync.Mutex
	calls []time.Time
}

func (f *fakeBroker) called() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, time.Now())
	return len(f.calls)
}

func (f *fakeBroker) Subscribe(stream fakeSubscribeStream) error {
	n := f.called()
	request, err := stream.Recv()
	if err != nil {
		return err
	}
	return f.subscribe(n, request.GetOpen(), stream)
}

func (f *fakeBroker) PublishStream(stream fakePublishStream) error {
	n := f.called()
	if _, err := stream.Recv(); err != nil { // the empty frame that asks whether somebody is there
		return err
	}
	if err := stream.Send(&tinybrokerv1.PublishStreamResponse{}); err != nil {
		return err
	}
	return f.publish(n, stream)
}

// client serves f and returns a client of it.
func (f *fakeBroker) client(t *testing.T, change func(*ClientOptions)) *Client {
	t.Helper()
	l := bufconn.Listen(256 << 10)
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}))
	tinybrokerv1.RegisterBrokerServiceServer(server, f)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	o := ClientOptions{Target: "passthrough:///fake", DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	}}
	if change != nil {
		change(&o)
	}
	c, err := Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

func sendOpened(stream fakeSubscribeStream, opened *tinybrokerv1.Opened) error {
	if opened.GetSubscriptionId() == "" {
		opened.SubscriptionId = "made-up"
	}
	return stream.Send(&tinybrokerv1.SubscribeResponse{Opened: opened})
}

func sendClosed(stream fakeSubscribeStream, reason tinybrokerv1.CloseReason, lost uint64) error {
	return stream.Send(&tinybrokerv1.SubscribeResponse{Closed: &tinybrokerv1.Closed{Reason: reason, Lost: lost, Text: "queue full"}})
}
