package rpc

import (
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/proto"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestFrameSizes: a backlog comes in frames of many messages, and none exceeds 1 MiB unless a single message does.
func TestFrameSizes(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxMessageSize = 2 << 20 })
	stub := station.stub(t)
	sub := open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"**"}})
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // reproducible
	stream := openPublisher(t, stub)
	const n = 1500
	sent := 0
	for sent < n {
		var frame []*tinybrokerv1.Message
		for size := 0; size < 2<<20 && sent < n; sent++ {
			m := &tinybrokerv1.Message{Topic: "small", Payload: numbered(uint64(sent), random.IntN(300))}
			switch random.IntN(100) {
			case 0:
				m = &tinybrokerv1.Message{Topic: "large", Payload: numbered(uint64(sent), random.IntN(200<<10))}
			case 1:
				m.Topic = "other"
			}
			size += len(m.GetPayload())
			frame = append(frame, m)
		}
		sendFrame(t, stream, frame...)
		receipt(t, stream)
	}
	publishOne(t, stub, "huge", numbered(n, 3<<19))
	frames := 0
	for next := uint64(0); next <= n; {
		r := sub.frame(t)
		if size := proto.Size(r); size > 1<<20 && len(r.GetMessages()) > 1 || size > 4<<20 {
			t.Errorf("a frame of %d messages has %d bytes", len(r.GetMessages()), size)
		}
		for _, m := range r.GetMessages() {
			if got := numberOf(t, m.GetPayload()); got != next {
				t.Fatalf("message %d came, want %d", got, next)
			}
			next++
		}
		frames++
	}
	if frames > n/5 {
		t.Errorf("%d frames for %d messages", frames, n)
	}
}

// TestCompression: clients may compress what they send, on every call.
func TestCompression(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	compressed, plain := openPatterns(t, stub, "**"), openPatterns(t, station.stub(t), "**")
	stream := openPublisher(t, stub)
	for n := uint64(0); n < 100; n += 10 {
		var frame []*tinybrokerv1.Message
		for i := range uint64(10) {
			frame = append(frame, &tinybrokerv1.Message{Topic: "t", Payload: numbered(n+i, 10*int(n))})
		}
		sendFrame(t, stream, frame...)
		receipt(t, stream)
	}
	for _, sub := range []*stockStream{compressed, plain} {
		for i, m := range sub.take(t, 100) {
			if got := numberOf(t, m.GetPayload()); got != uint64(i) {
				t.Fatalf("message %d came, want %d", got, i)
			}
		}
	}
	publishOne(t, stub, "t", make([]byte, 1<<20-1))
	if got := plain.take(t, 1)[0]; len(got.GetPayload()) != 1<<20-1 {
		t.Errorf("%d bytes", len(got.GetPayload()))
	}
}

// TestLiveLatency: a message is delivered when it is published, not when a frame is full.
func TestLiveLatency(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	sub := openPatterns(t, station.stub(t), "t")
	begun := time.Now()
	for i := range uint64(20) {
		publishOne(t, stub, "t", numbered(i, 0))
		sub.take(t, 1)
	}
	if d := time.Since(begun); d > time.Second {
		t.Errorf("20 messages one after the other took %s", d)
	}
}
