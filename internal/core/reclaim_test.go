package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fillMemory publishes to topic until something is refused or somebody is evicted.
func fillMemory(t *testing.T, b *Broker, topic string, size int) (accepted int) {
	t.Helper()
	for range 1 << 16 {
		if r := publish(t, b, post{topic: topic, payload: strings.Repeat("x", size)}); r[0].Err != nil || b.Stats().Evictions > 0 {
			return accepted
		}
		accepted++
	}
	t.Fatal("memory is never full")
	return 0
}

// Frozen subscriptions whose queues are far from full hold all memory together. The one that weighs most goes, and says why; a reader that
// has taken something just now stays, though its queue is longer.
func TestMemoryIsTakenFromWhoDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
		small := subscribe(t, b, SubscribeOptions{Patterns: []string{"small"}})
		large := subscribe(t, b, SubscribeOptions{Patterns: []string{"large"}})
		reader := subscribe(t, b, SubscribeOptions{Patterns: []string{"read"}})
		for i := range 20 {
			publish(t, b, post{topic: "large", payload: strings.Repeat("l", 10_000)})
			if i < 10 {
				publish(t, b, post{topic: "small", payload: strings.Repeat("s", 10_000)})
			}
		}
		time.Sleep(idleHolder)
		fillMemory(t, b, "read", 20_000)
		var d Delivery
		if !reader.Take(&d, 1) { // it has a long queue, and takes from it
			t.Fatal("nothing to take")
		}
		reader.Settle(&d, true)
		if r := publish(t, b, post{topic: "read", payload: strings.Repeat("x", 40_000)}); r[0].Err != nil || r[0].Receivers != 1 {
			t.Fatalf("refused although frozen subscriptions hold memory: %+v", r[0])
		}
		if e := large.Ending(); e.Reason != EndEvicted || e.Lost != 20 || e.Text != "memory full (1048576 bytes)" {
			t.Errorf("the largest holder: %+v", e)
		}
		for _, s := range []*Subscription{small, reader} {
			if e := s.Ending(); e.Reason != EndNone {
				t.Errorf("%v has ended: %+v", s.Patterns(), e)
			}
		}
		if st := b.Stats(); st.Evictions != 1 || st.Refused != 0 || st.Lost != 20 || st.Unrouted != 0 {
			t.Errorf("%d evictions, %d refused, %d lost, %d unrouted", st.Evictions, st.Refused, st.Lost, st.Unrouted)
		}
	})
}

// Bytes that several frozen subscriptions share are free only when all of those have gone; that is then done.
func TestSharedMemoryIsTakenFromAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
		var frozen []*Subscription
		for range 5 {
			frozen = append(frozen, subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}}))
		}
		reader := subscribe(t, b, SubscribeOptions{Patterns: []string{"u"}})
		publish(t, b, post{topic: "t", payload: strings.Repeat("x", 900_000)})
		time.Sleep(idleHolder)
		if r := publish(t, b, post{topic: "u", payload: strings.Repeat("x", 500_000)}); r[0].Err != nil || r[0].Receivers != 1 {
			t.Fatalf("%+v", r[0])
		}
		for _, s := range frozen {
			if s.Ending().Reason != EndEvicted {
				t.Error("a frozen subscription is still there")
			}
		}
		takeAll(reader)
		wantMemory(t, b, 0)
	})
}

// Whose policy is to drop loses the queue and stays.
func TestMemoryIsDroppedByPolicy(t *testing.T) {
	for _, policy := range []OverflowPolicy{OverflowDropOldest, OverflowDropNewest} {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
			s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}, Overflow: policy})
			for range 9 {
				publish(t, b, post{topic: "t", payload: strings.Repeat("x", 100_000)})
			}
			time.Sleep(idleHolder)
			if r := publish(t, b, post{topic: "t", payload: strings.Repeat("y", 500_000)}); r[0].Err != nil || r[0].Receivers != 1 {
				t.Fatalf("%s: %+v", policy, r[0])
			}
			var d Delivery
			if !s.Take(&d, 1<<20) || d.Count != 1 || d.DroppedBefore != 9 {
				t.Errorf("%s: took %d messages, %d dropped before", policy, d.Count, d.DroppedBefore)
			}
			s.Settle(&d, true)
			if st := b.Stats(); st.Dropped != 9 || st.Delivered != 1 || st.Published != 10 || st.Memory != 0 {
				t.Errorf("%s: %+v", policy, st)
			}
		})
	}
}

// What a group holds cannot be had by evicting: the publish is refused, nobody is evicted for nothing, and nobody looks again and again.
func TestMemoryHeldByAGroupIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
		join(t, b, JoinOptions{Patterns: []string{"g"}})
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"s"}})
		publish(t, b, post{topic: "s", payload: "short"})
		fillMemory(t, b, "g", 50_000)
		time.Sleep(time.Second)
		for range 3 {
			if r := publish(t, b, post{topic: "s", payload: strings.Repeat("x", 50_000)}); !errors.Is(r[0].Err, ErrMemory) {
				t.Fatalf("%+v", r[0])
			}
		}
		if s.Ending().Reason != EndNone {
			t.Error("evicted, though that could not help")
		}
		if r := publish(t, b, post{topic: "s", payload: strings.Repeat("x", 2<<20)}); !errors.Is(r[0].Err, ErrMemory) {
			t.Errorf("more than there is: %+v", r[0])
		}
	})
}

// Frozen subscriptions that share a little do not go for a publish that they cannot make room for together.
func TestNobodyIsEvictedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
		join(t, b, JoinOptions{Patterns: []string{"g"}})
		for range 50 {
			subscribe(t, b, SubscribeOptions{Patterns: []string{"s"}})
		}
		reader := subscribe(t, b, SubscribeOptions{Patterns: []string{"r"}})
		publish(t, b, post{topic: "g", payload: strings.Repeat("x", 900_000)})
		for range 10 {
			publish(t, b, post{topic: "s", payload: strings.Repeat("x", 10_000)})
		}
		time.Sleep(time.Second)
		if r := publish(t, b, post{topic: "r", payload: strings.Repeat("x", 200_000)}); !errors.Is(r[0].Err, ErrMemory) {
			t.Errorf("%+v", r[0])
		}
		if n := b.Stats().Evictions; n != 0 {
			t.Errorf("%d were evicted in vain", n)
		}
		time.Sleep(time.Second)
		if r := publish(t, b, post{topic: "r", payload: strings.Repeat("x", 110_000)}); r[0].Err != nil || b.Stats().Evictions != 50 {
			t.Errorf("%+v, %d evicted", r[0], b.Stats().Evictions)
		}
		takeAll(reader)
	})
}

// Whose messages others hold as well makes no room by going, and stays, though it holds most.
func TestWhoHoldsWhatOthersHoldStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
		join(t, b, JoinOptions{Patterns: []string{"g"}})
		beside := subscribe(t, b, SubscribeOptions{Patterns: []string{"g"}})
		alone := subscribe(t, b, SubscribeOptions{Patterns: []string{"s"}})
		for range 6 {
			publish(t, b, post{topic: "g", payload: strings.Repeat("x", 100_000)})
		}
		for range 4 {
			publish(t, b, post{topic: "s", payload: strings.Repeat("x", 100_000)})
		}
		time.Sleep(time.Second)
		r := publish(t, b, post{topic: "g", payload: strings.Repeat("x", 100_000)})
		if r[0].Err != nil || alone.Ending().Reason != EndEvicted || beside.Ending().Reason != EndNone {
			t.Errorf("%+v; alone %+v, beside a group %+v", r[0], alone.Ending(), beside.Ending())
		}
	})
}

// A subscription that is frozen in the middle of a frame, and holds the rest of it, makes room by going as soon as its stream is gone.
func TestWhatIsBeingSentGoesWithItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
		reader := subscribe(t, b, SubscribeOptions{Patterns: []string{"r"}})
		const frozen = 4
		subs := make([]*Subscription, frozen)
		deliveries := make([]Delivery, 2*frozen)
		for i := range subs {
			topic := fmt.Sprint("t", i)
			subs[i] = subscribe(t, b, SubscribeOptions{Patterns: []string{topic}})
			message := post{topic: topic, payload: strings.Repeat("x", 60_000)}
			publish(t, b, message, message, message, message)
			for j := range 2 { // the first is with the transport, the second waits for it
				if d := &deliveries[2*i+j]; !subs[i].Take(d, 1) || d.Count != 1 {
					t.Fatal("nothing to take")
				}
			}
		}
		time.Sleep(time.Second)
		try := func() Run { return publish(t, b, post{topic: "r", payload: strings.Repeat("x", 200_000)})[0] }
		if r := try(); !errors.Is(r.Err, ErrMemory) {
			t.Errorf("%+v", r)
		}
		for i, s := range subs {
			if s.Ending().Reason == EndEvicted {
				s.Settle(&deliveries[2*i], false)
				s.Settle(&deliveries[2*i+1], false)
			}
		}
		if r := try(); r.Err != nil || b.Stats().Evictions != 1 {
			t.Errorf("%+v after %d evictions", r, b.Stats().Evictions)
		}
		takeAll(reader)
	})
}

// What nobody would receive needs no room, costs nobody a queue, and is not waited with.
func TestWhatNobodyReceivesNeedsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"s"}})
		fillMemory(t, b, "s", 100_000)
		time.Sleep(time.Second)
		batch := batchOf(post{topic: "a", payload: strings.Repeat("x", 2<<20)}, post{topic: "b", payload: "y"})
		batch.MaxWait = time.Minute
		begun := time.Now()
		for _, r := range publishBatch(t, b, batch) {
			if r.Err != nil || r.Accepted != 1 || r.Unrouted != 1 {
				t.Errorf("%+v", r)
			}
		}
		if waited := time.Since(begun); waited > 0 || s.Ending().Reason != EndNone {
			t.Errorf("after %s, the subscription %+v", waited, s.Ending())
		}
		takeAll(s)
		checkBooks(t, b)
		wantMemory(t, b, 0)
	})
}

// A subscription that has not had the time to take anything is busy, not slow.
func TestYoungHoldersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}})
		time.Sleep(time.Hour)
		n := fillMemory(t, b, "t", 100_000)
		if s.Ending().Reason != EndNone || n != 10 {
			t.Fatalf("ended %v after %d", s.Ending(), n)
		}
		time.Sleep(idleHolder)
		if r := publish(t, b, post{topic: "t", payload: strings.Repeat("x", 100_000)}); r[0].Err != nil || s.Ending().Reason != EndEvicted {
			t.Errorf("%+v, ended %v", r[0], s.Ending())
		}
	})
}

// A patient publisher waits for memory before anybody is evicted for it, and no longer than it said.
func TestAPatientPublisherWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}})
		subscribe(t, b, SubscribeOptions{Patterns: []string{"u"}})
		fillMemory(t, b, "t", 100_000)
		batch := batchOf(post{topic: "u", payload: strings.Repeat("x", 150_000)})
		batch.MaxWait = time.Minute
		go func() {
			var d Delivery
			for range 2 { // the first alone is not enough
				time.Sleep(10 * time.Second)
				s.Take(&d, 1)
				s.Settle(&d, true)
			}
		}()
		begun := time.Now()
		if r := publishBatch(t, b, batch); r[0].Err != nil || time.Since(begun) != 20*time.Second || s.Ending().Reason != EndNone {
			t.Errorf("%+v after %s, the subscription %v", r[0], time.Since(begun), s.Ending())
		}
		batch = batchOf(post{topic: "t", payload: strings.Repeat("x", 500_000)})
		batch.MaxWait = time.Minute
		begun = time.Now()
		if r := publishBatch(t, b, batch); r[0].Err != nil || time.Since(begun) != time.Minute || s.Ending().Reason != EndEvicted {
			t.Errorf("%+v after %s, the subscription %v", r[0], time.Since(begun), s.Ending())
		}
		if n := b.memory.waiting.Load(); n != 0 || len(b.memory.waiters) != 0 {
			t.Errorf("%d wait", n)
		}
	})
}

// Neither a drain nor a publisher that has gone waits for memory.
func TestWaitingForMemoryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
		join(t, b, JoinOptions{Patterns: []string{"t"}})
		fillMemory(t, b, "t", 100_000)
		try := func(ctx context.Context) error {
			batch := batchOf(post{topic: "t", payload: strings.Repeat("x", 100_000)})
			batch.MaxWait = time.Hour
			return b.Publish(ctx, batch)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := try(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		time.AfterFunc(time.Second, func() { b.Drain(time.Time{}) })
		if err := try(context.Background()); !errors.Is(err, ErrDraining) {
			t.Errorf("%v", err)
		}
	})
}

// Many queues of the same small messages take memory of their own. It is accounted for, and given back.
func TestRoomOfQueuesIsAccountedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const subscriptions, n = 100, 20_000
		b := newBroker(t, func(o *Options) { o.MaxMemory = 16 << 20 })
		var all []*Subscription
		for i := range subscriptions {
			policy := []OverflowPolicy{OverflowEvict, OverflowDropOldest, OverflowDropNewest}[i%3]
			all = append(all, subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}, Overflow: policy}))
		}
		for i := range n {
			publish(t, b, post{topic: "t", payload: fmt.Sprint(i)})
			if used := b.Stats().Memory; used > 16<<20 {
				t.Fatalf("%d bytes in use", used)
			}
		}
		st := b.Stats()
		if st.Evictions == 0 || st.Dropped == 0 {
			t.Errorf("%d evictions, %d dropped: the room of the queues is not accounted for", st.Evictions, st.Dropped)
		}
		for _, s := range all {
			takeAll(s)
		}
		wantMemory(t, b, 0)
		if st := b.Stats(); st.Published*subscriptions < st.Delivered+st.Dropped+st.Lost || st.Unrouted != 0 {
			t.Errorf("the books: %+v", st)
		}
	})
}

// Each message that matches a subscription is delivered, dropped, lost or queued, once; only what matches none is unrouted.
func TestTheBooksOfAnOverflow(t *testing.T) {
	for _, policy := range []OverflowPolicy{OverflowEvict, OverflowDropOldest, OverflowDropNewest} {
		b := newBroker(t, nil)
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}, Overflow: policy, Capacity: 3})
		publish(t, b, numbered("t", 0, 3)...)
		r := publish(t, b, numbered("t", 3, 2)...)
		if r[0].Unrouted != 0 || r[0].Accepted != 2 {
			t.Errorf("%s: %+v", policy, r[0])
		}
		if policy != OverflowEvict {
			takeAll(s)
		}
		publish(t, b, post{topic: "elsewhere", payload: "x"})
		if st := b.Stats(); st.Published != 6 || st.Unrouted != 1 || st.Delivered+st.Dropped+st.Lost != 5 {
			t.Errorf("%s: %d published, %d unrouted, %d delivered, %d dropped, %d lost", policy, st.Published, st.Unrouted, st.Delivered, st.Dropped, st.Lost)
		}
	}
}

// The last frame that a group has a small part of is let go when memory is full, whether the group has members or not.
func TestGroupsLetGoOfTheLastFrame(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
	const groups = 200
	for i := range groups {
		m := join(t, b, JoinOptions{Group: fmt.Sprint("g", i), Patterns: []string{fmt.Sprint("t.", i)}})
		if i%2 == 0 {
			m.Close()
		}
	}
	waste := post{topic: "nobody", payload: strings.Repeat("z", 50_000)}
	for i := range groups {
		if r := publish(t, b, post{topic: fmt.Sprint("t.", i), payload: "x"}, waste); r[0].Err != nil {
			t.Fatalf("%d messages of a byte fill the memory: %v", i, r[0].Err)
		}
	}
	for _, st := range b.Groups() {
		if st.Pending != 1 {
			t.Fatalf("%+v", st)
		}
	}
}

// What a subscription has been sent is not held by it any more: it does not count for what its end would free.
func TestWhatWasSentClaimsNothing(t *testing.T) {
	for name, held := range map[string]bool{"at once": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, func(o *Options) { o.MaxMemory = 1_250_000 })
				defer b.Close()
				join(t, b, JoinOptions{Patterns: []string{"t"}})
				frozen := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}})
				subscribe(t, b, SubscribeOptions{Patterns: []string{"r"}})
				message := post{topic: "t", payload: strings.Repeat("x", 300_000)}
				publish(t, b, message, message, message, message)
				var d Delivery
				for range 2 {
					if !frozen.Take(&d, 1) {
						t.Fatal("nothing to take")
					}
					var h Hold
					if held {
						d.Hold(&h)
					}
					frozen.Settle(&d, true)
					h.Release()
				}
				time.Sleep(time.Second)
				if r := publish(t, b, post{topic: "r", payload: strings.Repeat("x", 200_000)}); !errors.Is(r[0].Err, ErrMemory) {
					t.Errorf("%+v", r[0])
				}
				if e := frozen.Ending(); e.Reason != EndNone {
					t.Errorf("evicted in vain, since a group holds the same: %+v", e)
				}
			})
		})
	}
}
