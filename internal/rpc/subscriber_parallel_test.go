package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// TestParallel: so many at a time, and what one member has in flight is bounded all the same.
func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		var mu sync.Mutex
		running, most := 0, 0
		r := newRecorder(func(string, uint32) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		})
		joinGroup(t, site.client(t, nil), SubscribeOptions{Parallel: 5, MaxInFlight: 8}, r.handle)
		site.sendNumbered(t, 0, 100)
		synctest.Wait()
		site.wantBooks(t, 0, 92, 8)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		site.wantBooks(t, 100, 0, 0)
		mu.Lock()
		defer mu.Unlock()
		if n := len(r.seen()); n != 100 || most != 5 {
			t.Errorf("%d handled, %d at a time; want 100, 5", n, most)
		}
	})
}

// TestParallelKeepsKeysInOrder: messages of one key are never handled at the same time, nor out of order; those of others are not held up.
func TestParallelKeepsKeysInOrder(t *testing.T) {
	for _, ack := range []core.AckMode{core.AckExplicit, core.AckNone} {
		t.Run(ack.String(), func(t *testing.T) {
			site := newSite(t, nil)
			rng := rand.New(rand.NewPCG(3, 3))
			const n, keys = 5000, 7
			var mu sync.Mutex
			last, busy := map[string]int{}, map[string]bool{}
			handled := 0
			all := make(chan struct{})
			joinGroup(t, site.client(t, nil), SubscribeOptions{Parallel: 8, MaxInFlight: 300, Ack: ack, Overflow: core.OverflowReject}, func(d *Delivery) error {
				mu.Lock()
				if d.Key != "" && busy[d.Key] {
					t.Errorf("key %s is handled twice at the same time", d.Key)
				}
				busy[d.Key] = true
				mu.Unlock()
				if d.Sequence%50 == 0 {
					time.Sleep(time.Millisecond)
				}
				mu.Lock()
				defer mu.Unlock()
				busy[d.Key] = false
				var number int
				if _, err := fmt.Sscan(string(d.Payload), &number); err != nil || d.Headers["number"] != string(d.Payload) {
					t.Errorf("payload %q, headers %v", d.Payload, d.Headers)
				}
				if d.Key != "" && number <= last[d.Key] {
					t.Errorf("key %s: %d after %d", d.Key, number, last[d.Key])
				}
				last[d.Key] = number
				if handled++; handled == n {
					close(all)
				}
				return nil
			})
			p := newPublisher(t, site.client(t, nil), PublisherOptions{MaxWait: time.Minute})
			for i := range n {
				m := core.Message{Topic: "t", Payload: []byte(fmt.Sprint(i + 1)), Headers: map[string]string{"number": fmt.Sprint(i + 1)}}
				if k := rng.IntN(keys); k > 0 {
					m.Key = fmt.Sprint(k)
				}
				if _, err := p.Publish(t.Context(), &m); err != nil {
					t.Fatal(err)
				}
			}
			closePublisher(t, p)
			select {
			case <-all:
			case <-time.After(20 * time.Second):
				t.Fatal("not all were handled")
			}
		})
	}
}

// TestASlowKeyHoldsUpNoOther: the messages of a key wait for each other, not for a goroutine that happens to be theirs.
func TestASlowKeyHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		r := newRecorder(func(payload string, _ uint32) error {
			if payload == "slow" {
				time.Sleep(time.Minute)
			}
			return nil
		})
		joinGroup(t, site.client(t, nil), SubscribeOptions{Parallel: 2}, r.handle)
		site.sendKeyed(t, "a", "slow", "behind")
		for i := range 20 {
			site.sendKeyed(t, fmt.Sprint("key ", i), fmt.Sprint(i))
		}
		synctest.Wait()
		if got := r.seen(); len(got) != 21 {
			t.Errorf("handled %v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		wantSeen(t, r, "behind/1")
	})
}

// TestParallelLeave: on the way out every handler that runs is waited for, nothing else begins, and the first error counts.
func TestParallelLeave(t *testing.T) {
	failed := errors.New("failed")
	for _, test := range []struct {
		name   string
		result error // of message 3
		cancel bool
		want   error
		acked  uint64
	}{
		{"cancel", nil, true, context.Canceled, 6},
		{"stop", ErrStop, false, nil, 6},
		{"error", failed, false, failed, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				r := newRecorder(func(payload string, _ uint32) error {
					switch payload {
					case "0", "1":
						return nil
					case "3":
						time.Sleep(time.Second)
						return test.result
					}
					time.Sleep(3 * time.Second)
					return nil
				})
				m := joinGroup(t, site.client(t, nil), SubscribeOptions{Parallel: 4, MaxInFlight: 30}, r.handle)
				site.sendNumbered(t, 0, 40)
				start := time.Now()
				if test.cancel {
					synctest.Wait()
					m.cancel()
				}
				time.Sleep(1500 * time.Millisecond)
				rest := newRecorder(nil)
				joinGroup(t, site.client(t, nil), SubscribeOptions{}, rest.handle)
				synctest.Wait()
				given := 34
				if test.want == failed { //nolint:errorlint // the very one
					given++
				}
				if n := len(rest.seen()); n != given {
					t.Errorf("%d came back while handlers ran, want %d", n, given)
				}
				if err := m.end(t); !errors.Is(err, test.want) {
					t.Errorf("Subscribe returned %v, want %v", err, test.want)
				}
				if took := time.Since(start); took != 3*time.Second {
					t.Errorf("it took %v", took)
				}
				if n := len(r.seen()); n != 6 {
					t.Errorf("%d handled, want 6", n)
				}
				site.wantBooks(t, 40, 0, 0)
			})
		})
	}
}

// TestParallelBroadcast: no acks, and nothing read ahead that is not soon handled.
func TestParallelBroadcast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, func(o *core.Options) { o.ConsumerCapacity = 100 })
		release := make(chan struct{})
		var mu sync.Mutex
		seen := map[string]int{}
		opened := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			result <- site.client(t, nil).Subscribe(ctx, SubscribeOptions{
				Patterns: []string{"t"}, Parallel: 3, OnOpened: func(Opened) { close(opened) },
			}, func(d *Delivery) error {
				<-release
				mu.Lock()
				defer mu.Unlock()
				seen[string(d.Payload)]++
				return nil
			})
		}()
		<-opened
		site.sendNumbered(t, 0, 90)
		synctest.Wait()
		close(release)
		synctest.Wait()
		cancel()
		if err := <-result; !errors.Is(err, context.Canceled) {
			t.Errorf("Subscribe returned %v", err)
		}
		if len(seen) != 90 {
			t.Errorf("%d of 90 handled", len(seen))
		}
	})
}
