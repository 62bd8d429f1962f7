package rpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// After an eviction the subscriber is told for how long it was away, beside what was lost with its queue.
func TestAnEvictionLeavesAGap(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.ConsumerCapacityBytes = 1 << 20 })
	client, err := Dial(t.Context(), ClientOptions{Target: station.addr})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	stub := station.stub(t)
	opened, handled, goOn := make(chan bool, 10), make(chan bool, 1), make(chan bool)
	ended, gaps := make(chan core.Ending, 1), make(chan Gap, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- client.Subscribe(ctx, SubscribeOptions{
			Patterns: []string{"t"},
			OnOpened: func(Opened) { opened <- true },
			OnEnded:  func(e core.Ending) { ended <- e },
			OnGap:    func(g Gap) { gaps <- g },
		}, func(d *Delivery) error {
			if string(d.Payload[:4]) == "last" {
				return ErrStop
			}
			select {
			case handled <- true:
				<-goOn
			default:
			}
			return nil
		})
	}()
	<-opened
	for i := range 12 {
		publishOne(t, stub, "t", fmt.Appendf(make([]byte, 0, 900_000), "%04d%899996d", i, 0))
		if i == 0 {
			<-handled
		}
	}
	eventually(t, "the reader is evicted", func() bool { return station.broker.Stats().Evictions == 1 })
	close(goOn)
	if e := <-ended; e.Reason != core.EndEvicted || e.Lost == 0 {
		t.Errorf("told of %+v", e)
	}
	<-opened
	if g := <-gaps; !g.Evicted || g.Restarted || g.Outage <= 0 || g.Outage > 20*time.Second {
		t.Errorf("told of the gap %+v", g)
	}
	publishOne(t, stub, "t", []byte("last"))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A gap that an eviction has begun goes on when the connection is lost before the subscription is registered again.
func TestAGapIsToldFromItsBegin(t *testing.T) {
	const late = 1500 * time.Millisecond // more than the first pause after a loss
	client := (&fakeBroker{subscribe: func(n int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
		if n == 2 {
			return status.Error(codes.Unavailable, "gone")
		}
		if err := sendOpened(stream, &tinybrokerv1.Opened{}); err != nil {
			return err
		}
		if n == 1 {
			time.Sleep(late)
			return sendClosed(stream, tinybrokerv1.CloseReason_CLOSE_REASON_EVICTED, 1) // it has lived for no time at all
		}
		return stream.Send(&tinybrokerv1.SubscribeResponse{Messages: []*tinybrokerv1.Message{{Topic: "t"}}, FirstSequence: 1, Attempt: 1})
	}}).client(t, nil)
	var gaps []Gap
	err := client.Subscribe(within(t, 20*time.Second), SubscribeOptions{
		Patterns: []string{"t"},
		OnGap:    func(g Gap) { gaps = append(gaps, g) },
	}, func(*Delivery) error { return ErrStop })
	if err != nil {
		t.Fatal(err)
	}
	if len(gaps) != 1 || gaps[0].Evicted || gaps[0].Outage < late {
		t.Errorf("told of the gaps %+v", gaps)
	}
}
