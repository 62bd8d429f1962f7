package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

func TestOpenedTellsTheTerms(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) {
		o.ConsumerCapacity, o.ConsumerCapacityBytes = 1000, 1<<20
	})
	stub := station.stub(t)
	for _, test := range []struct {
		name     string
		open     *tinybrokerv1.OpenSubscription
		capacity uint32
		overflow tinybrokerv1.OverflowPolicy
	}{
		{"defaults", &tinybrokerv1.OpenSubscription{}, 1000, tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_EVICT},
		{"small", &tinybrokerv1.OpenSubscription{Capacity: 1, SubscriptionId: "mine"}, 1, tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_EVICT},
		{"huge", &tinybrokerv1.OpenSubscription{Capacity: 1<<32 - 1}, 1000, tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_EVICT},
		{
			"spelt out",
			&tinybrokerv1.OpenSubscription{
				Mode: tinybrokerv1.DeliveryMode_DELIVERY_MODE_MULTI, AckMode: tinybrokerv1.AckMode_ACK_MODE_NONE,
				Overflow: tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_OLDEST, ClientName: "näme",
			},
			1000, tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_OLDEST,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.open.TopicPatterns = []string{"a"}
			o := open(t, stub, test.open).opened
			if o.GetCapacity() != test.capacity || o.GetCapacityBytes() != 1<<20 || o.GetOverflow() != test.overflow ||
				o.GetMode() != tinybrokerv1.DeliveryMode_DELIVERY_MODE_MULTI || o.GetBrokerRunId() != station.broker.RunID() ||
				o.GetSubscriptionId() == "" || test.open.GetSubscriptionId() != "" && o.GetSubscriptionId() != test.open.GetSubscriptionId() ||
				o.GetPrevious() != nil {
				t.Errorf("opened %v", o)
			}
		})
	}
}

// TestHeaderOfIdleSubscription: clients that wait for the header before they go on get it without any message.
func TestHeaderOfIdleSubscription(t *testing.T) {
	stub := newStation(t, nil).stub(t)
	openPatterns(t, stub, "the.connection.is.up")
	stream, err := stub.Subscribe(within(t, 10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	if err := stream.Send(openRequest("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(asked); d > 100*time.Millisecond {
		t.Errorf("the header took %s", d)
	}
}

func openRequest(patterns ...string) *tinybrokerv1.SubscribeRequest {
	return &tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{
		Open: &tinybrokerv1.OpenSubscription{TopicPatterns: patterns},
	}}
}

// TestReadyUnderLoad: what is published after `opened` arrives, 1000 times in 1000, while others publish.
func TestReadyUnderLoad(t *testing.T) {
	station := newStation(t, nil)
	reader, writer := station.stub(t), station.stub(t)
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range 8 {
		stub := station.stub(t)
		load.Go(func() {
			topic := fmt.Sprintf("load.%d", i)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: topic}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	openPatterns(t, reader, "load.*")
	ctx := within(t, 30*time.Second)
	var readers sync.WaitGroup
	for i := range 10 {
		readers.Go(func() {
			for j := range 100 {
				topic := fmt.Sprintf("ready.%d.%d", i, j)
				if err := readyRound(ctx, reader, writer, topic); err != nil {
					t.Errorf("%s: %v", topic, err)
					return
				}
			}
		})
	}
	readers.Wait()
	close(stop)
	load.Wait()
}

func readyRound(ctx context.Context, reader, writer tinybrokerv1.BrokerServiceClient, topic string) error {
	sub, err := tryOpen(ctx, reader, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{topic}})
	if err != nil {
		return err
	}
	defer sub.cancel()
	r, err := writer.Publish(ctx, &tinybrokerv1.PublishRequest{Topic: topic})
	if err != nil || r.GetReceivers() != 1 {
		return fmt.Errorf("%d receivers, %w", r.GetReceivers(), err)
	}
	if first, err := sub.Recv(); err != nil || len(first.GetMessages()) != 1 {
		return fmt.Errorf("received %v, %w", first, err)
	}
	return nil
}

// TestHalfClose: grpcurl and others close the request side right after `open`.
func TestHalfClose(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	sub := openPatterns(t, stub, "a")
	if err := sub.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		publishOne(t, stub, "a", nil)
		sub.take(t, 1)
		time.Sleep(20 * time.Millisecond)
	}
	sub.cancel()
	eventually(t, "the subscription ends with its stream", func() bool { return station.broker.Stats().Subscriptions == 0 })
}

func TestLeave(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	sub := openPatterns(t, stub, "a")
	publishOne(t, stub, "a", nil)
	sub.take(t, 1)
	if err := sub.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Leave{Leave: &tinybrokerv1.Leave{}}}); err != nil {
		t.Fatal(err)
	}
	closed := lastFrame(t, sub)
	if closed.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_LEFT || closed.GetLastSequence() != 1 || closed.GetLost() != 0 ||
		closed.GetText() == "" || closed.GetLived().AsDuration() <= 0 {
		t.Errorf("closed %v", closed)
	}
	if n := publishOne(t, stub, "a", nil); n != 0 {
		t.Errorf("%d receivers after the last has left", n)
	}
}

// lastFrame reads to the end of a stream that the broker ends, which must be OK with the same reason in the trailer.
func lastFrame(t testing.TB, sub *stockStream) *tinybrokerv1.Closed {
	t.Helper()
	var closed *tinybrokerv1.Closed
	for {
		r, err := sub.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("stream ended with %v", err)
		}
		if closed != nil {
			t.Fatalf("a frame after `closed`: %v", r)
		}
		closed = r.GetClosed()
	}
	if reason := sub.Trailer().Get(closeReasonTrailer); closed == nil || len(reason) != 1 || reason[0] != closed.GetReason().String() {
		t.Fatalf("trailer %v, closed %v", reason, closed)
	}
	return closed
}

func sameID(pattern string) *tinybrokerv1.OpenSubscription {
	return &tinybrokerv1.OpenSubscription{SubscriptionId: "same", TopicPatterns: []string{pattern}}
}

// TestTakeover: a second stream with a live id ends the first one; its late clean-up does not touch the second.
func TestTakeover(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	current := open(t, station.stub(t), sameID("a"))
	for i := range 100 {
		next := open(t, station.stub(t), sameID("a"))
		if n := publishOne(t, stub, "a", nil); n != 1 {
			t.Fatalf("round %d: %d receivers", i, n)
		}
		if closed := lastFrame(t, current); closed.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_REPLACED {
			t.Fatalf("round %d: closed %v", i, closed)
		}
		next.take(t, 1)
		current = next
	}
	if n := station.broker.Stats().Subscriptions; n != 1 {
		t.Errorf("%d subscriptions", n)
	}

	// The displaced stream is frozen, so that its handler is there for long after.
	frozen := open(t, station.stub(t, frozenOptions()...), &tinybrokerv1.OpenSubscription{SubscriptionId: "frozen", TopicPatterns: []string{"f"}})
	for range 20 {
		publishOne(t, stub, "f", make([]byte, 64<<10))
	}
	next := open(t, station.stub(t), &tinybrokerv1.OpenSubscription{SubscriptionId: "frozen", TopicPatterns: []string{"f"}})
	publishOne(t, stub, "f", nil)
	next.take(t, 1)
	frozen.cancel()
	eventually(t, "the displaced stream is gone", func() bool { return station.broker.Stats().Memory == 0 })
	publishOne(t, stub, "f", nil)
	next.take(t, 1)
}

// TestManyOfOneName: streams that all want the same id, at once, leave exactly one.
func TestManyOfOneName(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	var won, lost atomic.Int32
	var streams sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range 50 {
		streams.Go(func() {
			s, err := tryOpen(ctx, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "same", TopicPatterns: []string{"a"}})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.cancel()
			for {
				r, err := s.Recv()
				switch {
				case r.GetClosed().GetReason() == tinybrokerv1.CloseReason_CLOSE_REASON_REPLACED:
					lost.Add(1)
				case len(r.GetMessages()) > 0:
					won.Add(1)
				}
				if err != nil {
					return
				}
			}
		})
	}
	eventually(t, "all but one are replaced", func() bool { return lost.Load() == 49 })
	publishOne(t, stub, "a", nil)
	eventually(t, "the last one receives", func() bool { return won.Load() == 1 })
	cancel()
	streams.Wait()
	eventually(t, "the last one is gone", func() bool { return station.broker.Stats().Subscriptions == 0 })
}

func TestQuota(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxSubscriptions = 2 })
	stub := station.stub(t)
	open(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "one", TopicPatterns: []string{"a"}})
	second := openPatterns(t, stub, "a")
	_, err := tryOpen(t.Context(), stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}})
	checkStatus(t, err, codes.ResourceExhausted, "QUOTA")
	open(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "one", TopicPatterns: []string{"a"}}) // takes a place over
	second.cancel()
	eventually(t, "a place is free", func() bool {
		s, err := tryOpen(t.Context(), stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{strings.Repeat("x", 10)}})
		if err == nil {
			s.cancel()
		}
		return err == nil
	})
}

// TestAnErrorHasNoClosedFrame: a subscription that ends with an error of its subscriber's is told that, and not first that it was closed for no reason.
func TestAnErrorHasNoClosedFrame(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	for range 300 {
		sub := openPatterns(t, stub, "a")
		if err := sub.Send(openRequest("b")); err != nil {
			t.Fatal(err)
		}
		frame, err := sub.Recv()
		if err == nil {
			t.Fatalf("got %v before the error", frame)
		}
		checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
		sub.cancel()
	}
}
