package rpc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestPatternsComeAndGo: subscriptions with patterns of their own come and go, one in ten without a word, and leave nothing that takes memory or slows
// down publishers.
func TestPatternsComeAndGo(t *testing.T) {
	const clients, each = 16, 150
	station := newStation(t, nil)
	stub := station.stub(t)
	typical := func() time.Duration {
		var took []time.Duration
		for range 300 {
			began := time.Now()
			publishOne(t, stub, "u.x.y", nil)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	var wires []*cuttable
	var stubs []tinybrokerv1.BrokerServiceClient
	for range clients {
		stub, wire := station.cuttableStub(t)
		stubs, wires = append(stubs, stub), append(wires, wire)
	}
	visit := func(from, n int) {
		var running sync.WaitGroup
		for c := range clients {
			running.Go(func() {
				for i := range n {
					visitOnce(t, stubs[c], fmt.Sprintf("u.%d-%d.*", c, from+i))
					if i%10 == 0 {
						wires[c].cut()
					}
				}
			})
		}
		running.Wait()
		eventually(t, "no subscription is left", func() bool { return station.broker.Stats().Subscriptions == 0 })
	}
	visit(0, 10)
	before, heap := typical(), heapInUse()
	visit(10, each)
	if after := typical(); after > 3*before+time.Millisecond {
		t.Errorf("a publish takes %v, before that %v", after, before)
	}
	eventually(t, "memory is given back", func() bool { return heapInUse() < heap+heap/10+4<<20 })
	if st := station.broker.Stats(); st.Memory != 0 {
		t.Errorf("%d bytes are held", st.Memory)
	}
}

// visitOnce subscribes, again if the connection has just been cut, and goes.
func visitOnce(t *testing.T, stub tinybrokerv1.BrokerServiceClient, pattern string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		s, err := tryOpen(ctx, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{pattern, "u.{a,b}.**"}})
		if err == nil {
			s.cancel()
			return
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("subscribe: %v", err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
