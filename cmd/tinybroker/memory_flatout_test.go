//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestMemoryFlatOut publishes as fast as it goes, without patience, to a subscriber that reads, one that is slow, which is evicted and comes back
// again and again, and one that never reads and only loses its oldest messages, so that its queue stays full. Resident memory stays under the stated
// bound, and who reads misses nothing, unless it is told: on a busy machine it too may get no processor for the time that fills a queue.
// TINYBROKER_LONG=1 takes a minute for each size.
func TestMemoryFlatOut(t *testing.T) {
	took := 2 * time.Second
	if os.Getenv("TINYBROKER_LONG") != "" {
		took = time.Minute
	}
	for _, size := range []int{128, 4 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { flatOut(t, size, took) })
	}
}

func flatOut(t *testing.T, size int, took time.Duration) {
	const maxMemory = 256 << 20
	b := startBroker(t, "--max-memory", "256MiB", "--consumer-capacity", "1000000", "--consumer-capacity-bytes", "96MiB")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := b.stub().Subscribe(ctx)
	if err == nil {
		err = stream.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{Open: &tinybrokerv1.OpenSubscription{
			TopicPatterns: []string{"t"}, Overflow: tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_OLDEST, ClientName: "frozen",
		}}})
	}
	if err == nil {
		_, err = stream.Recv() // and nothing else, ever
	}
	if err != nil {
		t.Fatal(err)
	}

	dial := func() *rpc.Client {
		c, err := rpc.Dial(ctx, rpc.ClientOptions{Target: b.address})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	healthyClient, slowClient, publisherClient := dial(), dial(), dial()
	defer func() {
		for _, c := range []*rpc.Client{healthyClient, slowClient, publisherClient} {
			_ = c.Close()
		}
	}()
	var running sync.WaitGroup
	opened := make(chan struct{}, 2)
	var healthy, next, slow, evicted atomic.Int64
	running.Go(func() {
		first := sync.OnceFunc(func() { opened <- struct{}{} })
		told := false
		err := healthyClient.Subscribe(ctx, rpc.SubscribeOptions{
			Patterns: []string{"t"}, ClientName: "healthy", OnOpened: func(rpc.Opened) { first() },
			OnEnded: func(core.Ending) { evicted.Add(1); told = true },
		}, func(d *rpc.Delivery) error {
			n := int64(binary.BigEndian.Uint64(d.Payload))
			if n != next.Load() && (!told || n < next.Load()) {
				return fmt.Errorf("message %d came after %d", n, next.Load()-1)
			}
			told = false
			next.Store(n + 1)
			healthy.Add(1)
			return nil
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the healthy subscriber after %d messages: %v", healthy.Load(), err)
		}
	})
	running.Go(func() {
		first := sync.OnceFunc(func() { opened <- struct{}{} })
		_ = slowClient.Subscribe(ctx, rpc.SubscribeOptions{
			Patterns: []string{"t"}, ClientName: "slow", Capacity: 2000, OnOpened: func(rpc.Opened) { first() },
		}, func(*rpc.Delivery) error {
			slow.Add(1)
			time.Sleep(5 * time.Millisecond)
			return nil
		})
	})
	<-opened
	<-opened

	p, err := publisherClient.Publisher(ctx, rpc.PublisherOptions{OnReceipt: func(r rpc.Receipt) {
		if r.Err != nil {
			t.Errorf("messages %d to %d were refused: %v", r.First, r.Last, r.Err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	m := core.Message{Topic: "t", Payload: make([]byte, size)}
	published := int64(0)
	for begun := time.Now(); published%256 != 0 || time.Since(begun) < took; published++ {
		binary.BigEndian.PutUint64(m.Payload, uint64(published))
		if _, err := p.Publish(ctx, &m); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(10 * time.Second); next.Load() < published && time.Now().Before(deadline) && !t.Failed(); {
		time.Sleep(time.Millisecond)
	}
	held, evictions := b.memory(), b.evictions()
	peak, bound := b.peak(), memoryBound(maxMemory, 5, 5)
	cancel()
	running.Wait()
	t.Logf("%d messages of %d bytes in %s: the healthy subscriber had %d of them and was evicted %d times, the slow one had %d; %d evictions; "+
		"%d MiB held at the end, %d MiB resident at most, the bound is %d MiB",
		published, size, took, healthy.Load(), evicted.Load(), slow.Load(), evictions, held>>20, peak>>20, bound>>20)
	if evicted.Load() == 0 && healthy.Load() != published {
		t.Errorf("the healthy subscriber had %d of %d messages", healthy.Load(), published)
	}
	residentUnder(t, peak, bound)
	if evictions == 0 || held < 1<<20 {
		t.Error("nobody was slow, or nobody frozen: the test shows nothing")
	}
}
