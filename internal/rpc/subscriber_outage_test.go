package rpc

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// TestALongOutage: subscribers come back however long the broker was away, and get everything from 5 s after its return on.
func TestALongOutage(t *testing.T) {
	for _, away := range []time.Duration{90 * time.Second, 12 * time.Hour} {
		t.Run(fmt.Sprint(away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				var lost, back atomic.Int64
				var subs []*subscription
				for range 3 {
					c := site.client(t, func(o *ClientOptions) {
						o.OnConnection = func(e ConnectionEvent) {
							if e.Waiting {
								return
							}
							if e.Lost {
								lost.Add(1)
								return
							}
							back.Add(1)
							if late := e.Outage - away; late < 0 || late > 5*time.Second {
								t.Errorf("back after %v", e.Outage)
							}
						}
					})
					subs = append(subs, subscribe(t, c, SubscribeOptions{Patterns: []string{"x.**"}}))
				}
				site.kill(t)
				time.Sleep(away)
				site.start(t)
				publisher := site.client(t, nil)
				for n := range 20 {
					if _, err := publisher.Publish(t.Context(), &core.Message{Topic: "x.y", Payload: []byte(fmt.Sprint(n))}, 0); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				for _, s := range subs {
					var got []string
					for len(s.deliveries) > 0 {
						got = append(got, string((<-s.deliveries).Payload))
					}
					if len(got) < 15 || got[len(got)-1] != "19" {
						t.Errorf("came: %v", got)
					}
				}
				if lost.Load() != 3 || back.Load() != 3 {
					t.Errorf("%d losses and %d returns were told, of 3", lost.Load(), back.Load())
				}
			})
		})
	}
}
