package rpc

import (
	"context"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// brittleEncoding panics when it is asked for a length, once it is broken. The broker asks publishers' and senders'
// goroutines.
type brittleEncoding struct {
	Encoding
	broken *atomic.Bool
}

func (e brittleEncoding) Len(data []byte) int {
	if e.broken.Load() {
		panic("broken")
	}
	return e.Encoding.Len(data)
}

// TestPanics: a panic ends the call that it happened in, with INTERNAL, and nothing else.
func TestPanics(t *testing.T) {
	var broken atomic.Bool
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.Encoding = brittleEncoding{broken: &broken} })
	stub := station.stub(t)
	p := startProbe(t, station)
	victim := openPatterns(t, station.stub(t), "large")
	broken.Store(true)

	// More than one frame's worth: the sender has to divide it.
	stream := openPublisher(t, stub)
	var messages []*tinybrokerv1.Message
	for range 100 {
		messages = append(messages, &tinybrokerv1.Message{Topic: "large", Payload: make([]byte, 1<<10)})
	}
	sendFrame(t, stream, messages...)
	receipt(t, stream)
	if _, err := victim.Recv(); status.Code(err) != codes.Internal || status.Convert(err).Message() != "internal error" {
		t.Errorf("the subscriber's stream ended with %v", err)
	}

	// More than a queue's worth: the publisher has to divide it.
	open(t, station.stub(t), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"small"}, Capacity: 10})
	for _, m := range messages {
		m.Topic = "small"
	}
	sendFrame(t, stream, messages...)
	if _, err := stream.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("the publisher's stream ended with %v", err)
	}
	publishOne(t, stub, "small", nil)
	publishOne(t, stub, "large", nil)
	p.stop()
	if n := len(station.log.with(t, "panic in a call")); n != 2 {
		t.Errorf("%d panics logged", n)
	}
}

// TestPanicsOfHandlers: the same for handlers of any service, and for errors that no client should see.
func TestPanicsOfHandlers(t *testing.T) {
	station := newStation(t, nil)
	stream := bareStream{ctx: t.Context()}
	methods := []string{tinybrokerv1.BrokerService_Publish_FullMethodName, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"}
	for _, method := range methods {
		err := station.server.guardStream(nil, stream, &grpc.StreamServerInfo{FullMethod: method}, func(any, grpc.ServerStream) error { panic("stream") })
		if status.Code(err) != codes.Internal {
			t.Errorf("%s: %v", method, err)
		}
	}
	if n := len(station.log.with(t, "panic in a call")); n != 2 {
		t.Errorf("%d panics logged", n)
	}
	err := station.server.guardStream(nil, stream, &grpc.StreamServerInfo{FullMethod: methods[0]}, func(any, grpc.ServerStream) error {
		return secretError{}
	})
	if status.Code(err) != codes.Internal || status.Convert(err).Message() != "internal error" {
		t.Errorf("an unforeseen error is told as %v", err)
	}
	if lines := station.log.with(t, "call failed"); len(lines) != 1 || lines[0]["error"] != "secret" {
		t.Errorf("logged %v", lines)
	}
}

// bareStream is a stream of which nothing but the context is used.
type bareStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s bareStream) Context() context.Context { return s.ctx }

type secretError struct{}

func (secretError) Error() string { return "secret" }
