package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
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

// TestLongOutage: after 90 s without a broker, broadcast subscribers, a member of a group and a publisher are back within 5 s, told
// both the loss and the return, and get everything that is published from then on. What the publisher was given
// meanwhile comes, too.
func TestLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		var mu sync.Mutex
		var lost, waiting, back int
		connect := func() *Client {
			return site.client(t, func(o *ClientOptions) {
				o.OnConnection = func(e ConnectionEvent) {
					mu.Lock()
					defer mu.Unlock()
					if e.Waiting {
						if waiting++; e.Err.Error() != "connection refused" {
							t.Errorf("waiting, since %v", e.Err)
						}
					} else if e.Lost {
						lost++
					} else if back++; e.Outage < 90*time.Second || e.Outage > 95*time.Second {
						t.Errorf("back after %v", e.Outage)
					}
				}
			})
		}
		var subs []*subscription
		for range 3 {
			subs = append(subs, subscribe(t, connect(), SubscribeOptions{Patterns: []string{"x.**"}}))
		}
		subs = append(subs, subscribe(t, connect(), SubscribeOptions{Patterns: []string{"x.**"}, Group: "g"}))
		p := newPublisher(t, connect(), PublisherOptions{})
		site.kill(t)
		time.Sleep(45 * time.Second)
		if _, err := p.Publish(t.Context(), &core.Message{Topic: "x.y", Payload: []byte("meanwhile")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(45 * time.Second)
		site.start(t)
		time.Sleep(5 * time.Second)
		if mu.Lock(); lost != 5 || waiting != 5 || back != 5 {
			t.Errorf("%d losses told, %d causes and %d returns, of 5", lost, waiting, back)
		}
		mu.Unlock()
		const n = 30
		for i := range n {
			if _, err := p.Publish(t.Context(), &core.Message{Topic: "x.y", Payload: fmt.Append(nil, i)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if err := p.Flush(t.Context()); err != nil || p.confirmed() != n+1 {
			t.Errorf("%d confirmed: %v", p.confirmed(), err)
		}
		for _, s := range subs {
			got := s.take(t, n)
			if string(got[0].Payload) == "meanwhile" { // it may have come before this subscriber was back
				got = append(got[1:], s.take(t, 1)...)
			}
			for i, d := range got {
				if string(d.Payload) != fmt.Sprint(i) {
					t.Fatalf("message %d is %q", i, d.Payload)
				}
			}
			if len(s.gaps) != 1 {
				t.Errorf("%d gaps told", len(s.gaps))
			}
		}
	})
}

// TestWaitForTheFirstStream: a client that waits for its broker also does when the connection is lost before there is a stream, or when the broker
// that is there is going away.
func TestWaitForTheFirstStream(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, *testSite){
		"killed":   func(t *testing.T, site *testSite) { site.kill(t) },
		"draining": func(_ *testing.T, site *testSite) { site.broker.Drain(time.Time{}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				hasty := site.client(t, nil)
				patient := site.client(t, func(o *ClientOptions) { o.Wait = true })
				leave(t, site)
				if err := hasty.Subscribe(t.Context(), SubscribeOptions{Patterns: []string{"a"}}, nil); err == nil {
					t.Error("subscribed without a broker")
				}
				if _, err := hasty.Publisher(t.Context(), PublisherOptions{}); err == nil {
					t.Error("may publish without a broker")
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := patient.Subscribe(ctx, SubscribeOptions{Patterns: []string{"a"}}, nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("waiting in vain: %v", err)
				}
				time.AfterFunc(time.Minute, func() {
					site.kill(t)
					site.start(t)
				})
				publisher := make(chan *Publisher, 1)
				go func() {
					p, err := patient.Publisher(t.Context(), PublisherOptions{})
					if err != nil {
						t.Error(err)
					}
					publisher <- p
				}()
				s := subscribe(t, patient, SubscribeOptions{Patterns: []string{"a"}})
				if p := <-publisher; p != nil {
					if _, err := p.Publish(t.Context(), &core.Message{Topic: "a", Payload: []byte("x")}); err != nil {
						t.Error(err)
					}
					s.take(t, 1)
					if err := p.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}
