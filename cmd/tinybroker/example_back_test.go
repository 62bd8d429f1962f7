//go:build unix

package main

import (
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// endings ends each subscription, once opened, with the next code, and those after that with INVALID_ARGUMENT.
type endings struct {
	tinybrokerv1.UnimplementedBrokerServiceServer
	codes []codes.Code
	calls atomic.Int64
}

func (e *endings) Subscribe(stream tinybrokerv1.BrokerService_SubscribeServer) error {
	n := int(e.calls.Add(1)) - 1
	if _, err := stream.Recv(); err != nil {
		return err
	}
	opened := &tinybrokerv1.SubscribeResponse{Opened: &tinybrokerv1.Opened{SubscriptionId: "s", BrokerRunId: "r"}}
	if err := stream.Send(opened); err != nil {
		return err
	}
	if n < len(e.codes) {
		return status.Error(e.codes[n], "of the connection, or of a proxy")
	}
	return status.Error(codes.InvalidArgument, "enough")
}

// A subscriber comes back after every status that gRPC libraries make of a lost connection or a proxy's answer, as
// docs/clients.md says, and after no other.
func TestExampleSubscribersComeBack(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			e := &endings{codes: []codes.Code{
				codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.ResourceExhausted,
			}}
			server := grpc.NewServer()
			tinybrokerv1.RegisterBrokerServiceServer(server, e)
			served := make(chan error, 1)
			go func() { served <- server.Serve(listener) }()
			defer func() {
				server.Stop()
				<-served
			}()
			b := &broker{process: &process{t: t}, address: listener.Addr().String()}
			sub := b.example(l.name, append(slices.Clone(l.subscribe), "a"))
			sub.ended(1)
			if got, want := e.calls.Load(), int64(len(e.codes)+1); got != want {
				t.Errorf("it subscribed %d times, want %d:\n%s", got, want, sub.stderr.String())
			}
			if said := sub.stderr.String(); !strings.Contains(said, "enough") {
				t.Errorf("it does not say why it ended: %s", said)
			}
		})
	}
}
