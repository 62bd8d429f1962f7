package rpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// BenchmarkGroupEndToEnd is the way of one message of 128 bytes through a group, whose members each have a connection of their
// own: from the publisher over loopback TCP to the handler and, with acks, until the broker has the last of them.
func BenchmarkGroupEndToEnd(b *testing.B) {
	for _, c := range []struct {
		members  int
		ack      core.AckMode
		inFlight int
		parallel int
		keys     int
	}{
		{members: 1, ack: core.AckNone},
		{members: 1, ack: core.AckNone, keys: 10_000},
		{members: 1, ack: core.AckExplicit, inFlight: 1000},
		{members: 1, ack: core.AckExplicit, inFlight: 1000, keys: 10_000},
		{members: 4, ack: core.AckNone},
		{members: 4, ack: core.AckNone, keys: 10_000},
		{members: 4, ack: core.AckExplicit},
		{members: 4, ack: core.AckExplicit, inFlight: 1000},
		{members: 4, ack: core.AckExplicit, inFlight: 1000, keys: 10_000},
		{members: 4, ack: core.AckExplicit, inFlight: 1000, parallel: 8},
		{members: 16, ack: core.AckNone},
		{members: 16, ack: core.AckNone, keys: 10_000},
		{members: 16, ack: core.AckExplicit, inFlight: 1000},
		{members: 16, ack: core.AckExplicit, inFlight: 1000, keys: 10_000},
	} {
		name := fmt.Sprintf("members=%d/ack=%s/in_flight=%d/parallel=%d/keys=%d", c.members, c.ack, c.inFlight, c.parallel, c.keys)
		b.Run(name, func(b *testing.B) {
			address := benchBroker(b)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var handled atomic.Int64
			total := int64(b.N)
			all := make(chan struct{})
			var members sync.WaitGroup
			opened := make(chan struct{}, c.members)
			for range c.members {
				client := benchClient(b, address)
				members.Go(func() {
					err := client.Subscribe(ctx, SubscribeOptions{
						Group: "bench", Patterns: []string{"bench.*"}, Ack: c.ack, MaxInFlight: c.inFlight, Parallel: c.parallel,
						Overflow: core.OverflowReject, OnOpened: func(Opened) { opened <- struct{}{} },
					}, func(d *Delivery) error {
						if len(d.Payload) != 128 || d.Topic != "bench.topic" {
							return fmt.Errorf("message %q with %d bytes", d.Topic, len(d.Payload))
						}
						if handled.Add(1) == total {
							close(all)
						}
						return nil
					})
					if ctx.Err() == nil {
						b.Error(err)
					}
				})
			}
			for range c.members {
				<-opened
			}
			p, err := benchClient(b, address).Publisher(b.Context(), PublisherOptions{MaxWait: 10 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			keys := make([]string, max(1, c.keys))
			for i := range c.keys {
				keys[i] = fmt.Sprintf("key-%d", i)
			}
			m := core.Message{Topic: "bench.topic", Payload: make([]byte, 128)}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				m.Key = keys[i%len(keys)]
				if _, err := p.Publish(b.Context(), &m); err != nil {
					b.Fatal(err)
				}
			}
			if err := p.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
			<-all
			cancel()
			members.Wait() // the broker has confirmed all acknowledgements
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}
