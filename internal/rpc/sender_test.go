package rpc

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// sink is a stream that takes frames and writes them when told.
type sink struct {
	grpc.ServerStream
	frames []*rawFrame
}

func (s *sink) Context() context.Context { return context.Background() }

func (s *sink) SendMsg(m any) error {
	s.frames = append(s.frames, m.(*rawFrame))
	return nil
}

func (s *sink) write() {
	for _, f := range s.frames {
		f.bufs.Free()
	}
	s.frames = nil
}

func TestAPublisherSendsOnlyWhereItCannotBlock(t *testing.T) {
	options := core.DefaultOptions()
	options.Encoding = Encoding{}
	b, err := core.New(options)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sub, err := b.Subscribe(core.SubscribeOptions{Patterns: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	stream := &sink{}
	s := &sender{sub: sub, stream: stream, pending: new(pendingFrames)}
	publish := func() {
		t.Helper()
		data := appendRecordOf(nil, &core.Message{Topic: "t"}, messageLen(&core.Message{Topic: "t"}))
		batch := &core.Batch{Data: data, Runs: []core.Run{{Topic: []byte("t"), End: len(data), Count: 1}}}
		if err := b.Publish(t.Context(), batch); err != nil || batch.Runs[0].Accepted != 1 {
			t.Fatal(err, batch.Runs[0])
		}
	}

	publish()
	if !s.sendDirect(sub) || len(stream.frames) != 1 {
		t.Fatalf("an idle stream got %d frames, want 1", len(stream.frames))
	}
	publish()
	if s.sendDirect(sub) || len(stream.frames) != 1 {
		t.Error("a frame was given to a transport that has not written the one before")
	}
	stream.write()
	s.turn.Lock()
	if s.sendDirect(sub) || len(stream.frames) > 0 {
		t.Error("a frame was sent while another goroutine was sending")
	}
	s.turn.Unlock()
	if !s.sendDirect(sub) || len(stream.frames) != 1 {
		t.Error("what was left was not sent")
	}
	stream.write()
	if !s.sendDirect(sub) || len(stream.frames) > 0 {
		t.Error("an empty queue is nothing to wake the owner for")
	}
	if stats := b.Stats(); stats.Delivered != 2 {
		t.Errorf("%d delivered, want 2", stats.Delivered)
	}
}
