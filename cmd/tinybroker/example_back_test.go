//go:build unix

package main

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/auth/certtest"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// endings ends each subscription, once opened, with the next code, and those after that with INVALID_ARGUMENT.
type endings struct {
	tinybrokerv1.UnimplementedBrokerServiceServer
	codes []codes.Code
	heard func(ctx context.Context) // is called with each subscription
	calls atomic.Int64
}

// serveEndings serves e until the test ends, and returns it as the broker that the examples use.
func serveEndings(t *testing.T, e *endings, options ...grpc.ServerOption) *broker {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	tinybrokerv1.RegisterBrokerServiceServer(server, e)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return &broker{process: &process{t: t}, address: listener.Addr().String()}
}

func (e *endings) Subscribe(stream tinybrokerv1.BrokerService_SubscribeServer) error {
	n := int(e.calls.Add(1)) - 1
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if e.heard != nil {
		e.heard(stream.Context())
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
	eachLanguage(t, func(t *testing.T, l language) {
		e := &endings{codes: []codes.Code{
			codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.ResourceExhausted,
		}}
		b := serveEndings(t, e)
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

// A token that is exchanged while a subscriber runs is the one with which it comes back.
func TestExampleSubscribersReadTheirTokenAgain(t *testing.T) {
	t.Parallel()
	eachLanguage(t, func(t *testing.T, l language) {
		issuer := certtest.New(t)
		pair := issuer.Issue("broker", nil)
		certificate, err := credentials.NewServerTLSFromFile(pair.Certificate, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		token := issuer.File("token", "first\n", 0o600)
		var seen []string // subscriptions come one after the other
		e := &endings{codes: []codes.Code{codes.Unavailable}, heard: func(ctx context.Context) {
			seen = append(seen, metadata.ValueFromIncomingContext(ctx, "authorization")...)
			issuer.File("token", "second\n", 0o600)
		}}
		b := serveEndings(t, e, grpc.Creds(certificate))
		sub := b.example(l.name, append(slices.Clone(l.subscribe), "a"), env("TINYBROKER_TLS_CA="+issuer.CA, "TINYBROKER_TOKEN_FILE="+token))
		sub.ended(1)
		if want := []string{"Bearer first", "Bearer second"}; !slices.Equal(seen, want) {
			t.Errorf("it came with %q, want %q\n%s", seen, want, sub.stderr.String())
		}
	})
}
