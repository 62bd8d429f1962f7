package rpc

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestClientsComeBackSpread: many clients that lost one broker in the same instant do not return together.
func TestClientsComeBackSpread(t *testing.T) {
	for _, downtime := range []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond, time.Minute} {
		t.Run(fmt.Sprint(downtime), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const clients = 200
				site := newSite(t, nil)
				var mu sync.Mutex
				var returns []time.Time
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				for range clients {
					c := site.client(t, nil)
					running.Go(func() {
						_ = c.Subscribe(ctx, SubscribeOptions{Patterns: []string{"a"}, OnGap: func(Gap) {
							mu.Lock()
							defer mu.Unlock()
							returns = append(returns, time.Now())
						}}, func(*Delivery) error { return nil })
					})
				}
				synctest.Wait()
				site.kill(t)
				time.Sleep(downtime)
				site.start(t)
				started := time.Now()
				time.Sleep(10 * time.Second)
				cancel()
				running.Wait()
				if len(returns) != clients {
					t.Errorf("%d of %d clients are back", len(returns), clients)
				}
				slots := make(map[time.Duration]int)
				for _, r := range returns {
					slots[r.Sub(started).Truncate(100*time.Millisecond)]++
				}
				for slot, n := range slots {
					if n > clients/4 {
						t.Errorf("%d clients came back in the 100 ms after %v", n, slot)
					}
				}
			})
		})
	}
}
