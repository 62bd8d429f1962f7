package rpc

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestUnreadReceipts: a publisher who does not read its receipts is not read either, which is nobody else's trouble.
func TestUnreadReceipts(t *testing.T) {
	station := newStation(t, nil)
	stream := openPublisher(t, station.stub(t, frozenOptions()...))
	sent := make(chan uint64, 1)
	progress := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		n := uint64(0)
		for ctx.Err() == nil && stream.Send(&tinybrokerv1.PublishStreamRequest{Messages: []*tinybrokerv1.Message{{Topic: "a", Payload: make([]byte, 100)}}}) == nil {
			n++
			select {
			case progress <- struct{}{}:
			default:
			}
		}
		sent <- n
	}()
	for blocked := false; !blocked; {
		select {
		case <-progress:
		case <-time.After(500 * time.Millisecond):
			blocked = true
		}
	}
	published := station.broker.Stats().Published
	other := station.stub(t)
	for range 100 {
		publishOne(t, other, "b", nil)
	}
	if n := station.broker.Stats().Published; n != published+100 {
		t.Errorf("%d more messages were read from a publisher that does not read", n-published-100)
	}
	stop()
	through := uint64(0)
	for {
		select {
		case n := <-sent:
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			for through < n {
				through = receipt(t, stream).GetAcceptedThrough()
			}
			return
		default:
			through = receipt(t, stream).GetAcceptedThrough()
		}
	}
}

// TestPublisherGoesAway: a reset in the middle of a wait leaves nothing behind, and what was confirmed is delivered.
func TestPublisherGoesAway(t *testing.T) {
	station := newStation(t, nil)
	reader := station.stub(t, frozenOptions()...)
	sub := open(t, reader, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"**"}, Capacity: 8})
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := station.stub(t).PublishStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(50) {
		err := stream.Send(&tinybrokerv1.PublishStreamRequest{
			Messages: []*tinybrokerv1.Message{{Topic: "a", Payload: numbered(i, 16<<10)}}, MaxWait: durationpb.New(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the publisher waits", func() bool { return station.broker.Stats().QueuedMessages >= 6 })
	confirmed := receipt(t, stream).GetAcceptedThrough()
	cancel()
	for i, m := range sub.take(t, int(confirmed)) {
		if n := numberOf(t, m.GetPayload()); n != uint64(i) {
			t.Fatalf("message %d came, want %d", n, i)
		}
	}
	sub.cancel()
	eventually(t, "nothing is left behind", func() bool {
		st := station.broker.Stats()
		return st.Memory == 0 && st.Subscriptions == 0
	})
}
