package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func countOf(t testing.TB, counts []Count, reason string) uint64 {
	t.Helper()
	for _, c := range counts {
		if c.Reason == reason {
			return c.N
		}
	}
	t.Fatalf("no reason %q in %v", reason, counts)
	return 0
}

// wantCounts checks that the reasons named have these counts and all others none.
func wantCounts(t testing.TB, what string, counts []Count, want map[string]uint64) {
	t.Helper()
	for _, c := range counts {
		if c.N != want[c.Reason] {
			t.Errorf("%s %s: %d, want %d", what, c.Reason, c.N, want[c.Reason])
		}
		delete(want, c.Reason)
	}
	if len(want) > 0 {
		t.Errorf("%s: no such reasons: %v", what, want)
	}
}

// Every reason is there before anything happens, under a name of its own.
func TestTallyKnowsEveryReason(t *testing.T) {
	tally := newBroker(t, nil).Tally()
	for _, counts := range [][]Count{tally.Dropped, tally.Refused, tally.Ended, tally.Evictions} {
		var names []string
		for _, c := range counts {
			names = append(names, c.Reason)
			for _, r := range c.Reason {
				if r != '_' && (r < 'a' || r > 'z') {
					t.Errorf("%q is no label value", c.Reason)
				}
			}
		}
		slices.Sort(names)
		if n := len(slices.Compact(slices.Clone(names))); n != len(names) || n < 2 {
			t.Errorf("%q", names)
		}
	}
	if len(tally.Dropped) != int(DropRefused)+len(endWords) || len(tally.Ended) != len(endWords)-1 {
		t.Errorf("%d and %d reasons", len(tally.Dropped), len(tally.Ended))
	}
}

func TestTallyNamesEveryLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.GroupLinger = time.Minute; o.MaxAttempts = 1 })
		oldest := subscribe(t, b, SubscribeOptions{Patterns: []string{"oldest"}, Capacity: 10, Overflow: OverflowDropOldest})
		publish(t, b, numbered("oldest", 0, 12)...)
		newest := subscribe(t, b, SubscribeOptions{Patterns: []string{"newest"}, Capacity: 10, Overflow: OverflowDropNewest})
		publish(t, b, numbered("newest", 0, 13)...)
		evicted := subscribe(t, b, SubscribeOptions{Patterns: []string{"evicted"}, Capacity: 10})
		publish(t, b, numbered("evicted", 0, 8)...)
		publish(t, b, numbered("evicted", 0, 6)...)
		wantEnded(t, evicted, EndEvicted, 14)
		for i, end := range []func(*Subscription){(*Subscription).Close, (*Subscription).Leave,
			func(s *Subscription) { _ = b.CloseSubscription(s.ID()) }, func(s *Subscription) {
				subscribe(t, b, SubscribeOptions{ID: s.ID(), Patterns: []string{"nothing"}})
			}} {
			s := subscribe(t, b, SubscribeOptions{Patterns: []string{"ends"}})
			publish(t, b, numbered("ends", 0, 100*(i+1))...)
			end(s)
		}
		broken := subscribe(t, b, SubscribeOptions{Patterns: []string{"broken"}})
		publish(t, b, numbered("broken", 0, 7)...)
		var d Delivery
		if !broken.Take(&d, 1<<20) {
			t.Fatal("nothing to take")
		}
		broken.Settle(&d, false)

		// A group that expires, one whose policy drops, and one that is full when a dead letter comes.
		m := join(t, b, JoinOptions{Group: "gone", Patterns: []string{"gone"}})
		m.Close()
		publish(t, b, numbered("gone", 0, 5)...)
		dropping := join(t, b, JoinOptions{Group: "drops", Patterns: []string{"drops"}, Settings: GroupSettings{Overflow: OverflowDropOldest, Capacity: 3}})
		publish(t, b, numbered("drops", 0, 8)...)
		full := join(t, b, JoinOptions{Group: "full", Patterns: []string{DeadLetterTopic("drops")}, Settings: GroupSettings{Capacity: 1}})
		for range 2 {
			dropping.Take(&d, 1)
			dropping.Settle(&d, true)
			dropping.Nack(Nack{Action: NackReject}, SequenceRange{1, 100})
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()

		tally := b.Tally()
		wantCounts(t, "dropped", tally.Dropped, map[string]uint64{
			"drop_oldest": 2 + 5, "drop_newest": 3, "evicted": 14, "closed": 100 + 7, "left": 200, "kicked": 300, "replaced": 400,
			"group_expired": 5, "refused": 1,
		})
		wantCounts(t, "ended", tally.Ended, map[string]uint64{"evicted": 1, "closed": 2, "left": 1, "kicked": 1, "replaced": 1})
		wantCounts(t, "evictions", tally.Evictions, map[string]uint64{"queue_full": 1})
		if st := b.Stats(); st.Dropped != 2+5+3+5+1 || st.Lost != 14+107+200+300+400 || st.Evictions != 1 {
			t.Errorf("%d dropped, %d lost, %d evictions", st.Dropped, st.Lost, st.Evictions)
		}
		if got := tally.GroupTotals; got.Dropped != 10 || got.DeadLetters != 2 || got.Accepted != 5+8+1 {
			t.Errorf("groups: %+v", got)
		}
		takeAll(oldest)
		takeAll(newest)
		checkBooks(t, b)
		_ = full
	})
}

// Memory that runs out is told from queues that are full.
func TestTallyNamesWhatMemoryCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
		holder := subscribe(t, b, SubscribeOptions{Patterns: []string{"a"}})
		dropper := subscribe(t, b, SubscribeOptions{Patterns: []string{"b"}, Overflow: OverflowDropOldest})
		subscribe(t, b, SubscribeOptions{Patterns: []string{"c"}})
		large := string(make([]byte, 300<<10))
		publish(t, b, post{topic: "a", payload: large}, post{topic: "b", payload: large})
		time.Sleep(time.Second)
		publish(t, b, post{topic: "c", payload: string(make([]byte, 900<<10))})
		wantEnded(t, holder, EndEvicted, 1)
		tally := b.Tally()
		wantCounts(t, "evictions", tally.Evictions, map[string]uint64{"memory": 1})
		wantCounts(t, "dropped", tally.Dropped, map[string]uint64{"evicted": 1, "memory": 1})
		if got := takeAll(dropper); len(got) != 0 {
			t.Errorf("%d are left", len(got))
		}
		checkBooks(t, b)
	})
}

func TestTallyNamesEveryRefusal(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20; o.MaxMessageSize = 1 << 20 })
	join(t, b, JoinOptions{Group: "full", Patterns: []string{"full"}, Settings: GroupSettings{Capacity: 1}})
	publish(t, b, post{topic: "full", payload: string(make([]byte, 2<<20))})
	publish(t, b, numbered("full", 0, 5)...)
	bad := batchOf(numbered("bad", 0, 3)...)
	bad.Runs[0].Err = errors.New("too loud")
	publishBatch(t, b, bad)
	b.CountRefused(ErrTopicInvalid, 2)
	b.CountRefused(fmt.Errorf("%w: to shout", ErrNotAllowed), 7)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	patient := batchOf(numbered("full", 0, 2)...)
	patient.MaxWait = time.Hour
	if err := b.Publish(ctx, patient); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	mixed := batchOf(append(numbered("full", 0, 3), numbered("other", 0, 5)...)...)
	if err := b.Publish(ctx, mixed); !errors.Is(err, context.Canceled) || !errors.Is(mixed.Runs[0].Err, ErrGroupFull) {
		t.Errorf("%v; %v", err, mixed.Runs[0].Err)
	}
	b.Drain(time.Time{})
	late := batchOf(numbered("late", 0, 6)...)
	if err := b.Publish(t.Context(), late); !errors.Is(err, ErrDraining) {
		t.Errorf("%v", err)
	}
	wantCounts(t, "refused", b.Tally().Refused, map[string]uint64{"memory": 1, "group_full": 4 + 3, "invalid": 5, "not_allowed": 7, "canceled": 2 + 5, "draining": 6})
	if st := b.Stats(); st.Refused != 33 || st.Published != 1 {
		t.Errorf("%d refused, %d published", st.Refused, st.Published)
	}
}

// checkBooks checks the equations of Tally on a broker where nothing is under way.
func checkBooks(t testing.TB, b *Broker) {
	t.Helper()
	tally := b.Tally()
	var dropped, ended uint64
	for _, c := range tally.Dropped {
		dropped += c.N
	}
	for _, c := range tally.Ended {
		ended += c.N
	}
	var waiting, held uint64
	for _, g := range tally.Groups {
		if g.Accepted != g.Acked+g.DeadLetters+g.Dropped+uint64(g.Pending+g.InFlight) {
			t.Errorf("group %s: %+v", g.Name, g)
		}
		waiting += uint64(g.Pending)
		held += uint64(g.InFlight)
	}
	st := b.Stats()
	queued := uint64(st.QueuedMessages) - waiting
	totals := tally.GroupTotals
	if tally.Matched != tally.DeliveredBroadcast+dropped-totals.Dropped+queued {
		t.Errorf("broadcast: %d matched; %d delivered, %d dropped, %d queued", tally.Matched, tally.DeliveredBroadcast, dropped-totals.Dropped, queued)
	}
	if totals.Accepted != totals.Acked+totals.DeadLetters+totals.Dropped+waiting+held {
		t.Errorf("groups: %+v, %d wait, %d are in flight", totals, waiting, held)
	}
	if tally.Opened != ended+uint64(st.Subscriptions) {
		t.Errorf("%d opened, %d ended, %d there", tally.Opened, ended, st.Subscriptions)
	}
}

// checkGrowth reports a counter that fell between two tallies.
func checkGrowth(t testing.TB, before, after *Tally) {
	t.Helper()
	pairs := map[string][2]uint64{
		"matched": {before.Matched, after.Matched}, "delivered": {before.DeliveredBroadcast, after.DeliveredBroadcast},
		"delivered to groups": {before.DeliveredGroup, after.DeliveredGroup}, "opened": {before.Opened, after.Opened},
		"accepted": {before.GroupTotals.Accepted, after.GroupTotals.Accepted}, "acked": {before.GroupTotals.Acked, after.GroupTotals.Acked},
		"dead letters": {before.GroupTotals.DeadLetters, after.GroupTotals.DeadLetters}, "groups dropped": {before.GroupTotals.Dropped, after.GroupTotals.Dropped},
		"redelivered": {before.GroupTotals.Redelivered, after.GroupTotals.Redelivered}, "sum of latency": {uint64(before.Latency.Sum), uint64(after.Latency.Sum)},
	}
	for i := range before.Dropped {
		pairs["dropped "+before.Dropped[i].Reason] = [2]uint64{before.Dropped[i].N, after.Dropped[i].N}
	}
	for i := range before.Latency.Counts {
		pairs[fmt.Sprint("latency ", i)] = [2]uint64{before.Latency.Counts[i], after.Latency.Counts[i]}
	}
	for what, n := range pairs {
		if n[1] < n[0] {
			t.Errorf("%s fell from %d to %d", what, n[0], n[1])
		}
	}
}

// Subscribers and members of groups that soon expire come and go, in all ways, while messages are published. No counter ever falls,
// and at the end the books balance.
func TestBooksBalanceUnderChurn(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.GroupLinger = time.Millisecond; o.MaxAttempts = 2 })
	stop := make(chan struct{})
	var publishers, others sync.WaitGroup
	others.Go(func() {
		before := b.Tally()
		for {
			after := b.Tally()
			checkGrowth(t, &before, &after)
			before = after
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range 2 {
		publishers.Go(func() {
			for n := range 2000 {
				topic := fmt.Sprintf("t.%d", (n+i)%5)
				if err := b.Publish(t.Context(), batchOf(numbered(topic, n, 1+n%7)...)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	churn := func(client func(n int)) {
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					client(n)
				}
			}
		})
	}
	for range 2 {
		churn(func(n int) { churnSubscription(t, b, OverflowPolicy(1+n%3)) })
		churn(func(n int) { churnMember(t, b, fmt.Sprint("g", n%4)) })
	}
	publishers.Wait()
	close(stop)
	others.Wait()
	checkBooks(t, b)
	if tally := b.Tally(); tally.GroupTotals.Acked == 0 || tally.GroupTotals.Dropped == 0 || tally.DeliveredBroadcast == 0 || countOf(t, tally.Dropped, "drop_oldest") == 0 {
		t.Errorf("not all has happened: %+v", tally)
	}
}

// awaitWake waits a moment for something to take.
func awaitWake(wake, done <-chan struct{}) {
	select {
	case <-wake:
	case <-done:
	case <-time.After(time.Millisecond):
	}
}

func churnSubscription(t *testing.T, b *Broker, policy OverflowPolicy) {
	s, err := b.Subscribe(SubscribeOptions{Patterns: []string{"t.*"}, Capacity: 1 + rand.IntN(20), Overflow: policy})
	if err != nil {
		t.Error(err)
		return
	}
	var d Delivery
	for range rand.IntN(10) {
		awaitWake(s.Wake(), s.Done())
		if s.Take(&d, 200) {
			s.Settle(&d, rand.IntN(20) > 0)
		}
	}
	if rand.IntN(2) == 0 {
		s.Leave()
	}
	s.Close()
}

func churnMember(t *testing.T, b *Broker, group string) {
	m, err := b.Join(JoinOptions{Group: group, Patterns: []string{"t.*"}, MaxInFlight: 5,
		Settings: GroupSettings{Overflow: OverflowDropOldest, Capacity: 50}})
	if err != nil {
		t.Error(err)
		return
	}
	var d Delivery
	for range rand.IntN(20) {
		awaitWake(m.Wake(), m.Done())
		if !m.Take(&d, 200) {
			continue
		}
		first, n := d.FirstSequence, uint64(d.Count)
		m.Settle(&d, rand.IntN(20) > 0)
		numbers := SequenceRange{first, first + n - 1}
		switch rand.IntN(4) {
		case 0:
		case 1:
			m.Nack(Nack{Action: NackAction(rand.IntN(3))}, numbers)
		default:
			m.Ack(numbers)
		}
	}
	m.Close()
}

// Latency is from a message's arrival to its being written; a redelivery is none of it.
func TestDeliveryLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		time.Sleep(time.Hour)
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"x"}})
		m := join(t, b, JoinOptions{Group: "g", Patterns: []string{"x"}})
		publish(t, b, numbered("x", 0, 10)...)
		time.Sleep(40 * time.Millisecond)
		takeAll(s)
		time.Sleep(40 * time.Millisecond)
		var d Delivery
		m.Take(&d, 1<<20)
		time.Sleep(time.Second)
		m.Settle(&d, true)
		m.Nack(Nack{Action: NackRelease}, SequenceRange{1, 9})
		m.Ack(SequenceRange{10, 10})
		time.Sleep(time.Second)
		if m.Take(&d, 1<<20) { // given back, not begun with: still the first attempt
			m.Settle(&d, true)
		}
		m.Nack(Nack{Action: NackRetry, Delay: new(time.Duration)}, SequenceRange{1, 100})
		for m.Take(&d, 1<<20) { // and now the second
			if d.Attempt != 2 {
				t.Errorf("attempt %d", d.Attempt)
			}
			m.Settle(&d, true)
		}
		got := b.Tally().Latency
		want := map[time.Duration]uint64{50 * time.Millisecond: 1, 2500 * time.Millisecond: 2}
		for i, bound := range got.Bounds {
			if got.Counts[i] != want[bound] {
				t.Errorf("up to %s: %d, want %d", bound, got.Counts[i], want[bound])
			}
		}
		if want := 40*time.Millisecond + 1080*time.Millisecond + 2080*time.Millisecond; got.Sum != want {
			t.Errorf("sum %s, want %s", got.Sum, want)
		}
	})
}

// A copy of a part of a frame is as old as the frame.
func TestCopiesKeepTheirAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		time.Sleep(time.Hour)
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"x"}})
		large := post{topic: "other", payload: string(make([]byte, 8<<10))}
		publish(t, b, post{topic: "x", payload: "small"}, large)
		time.Sleep(3 * time.Second)
		publish(t, b, post{topic: "x", payload: "overtakes"}, large)
		takeAll(s)
		if got := b.Tally().Latency; got.Sum != 3*time.Second {
			t.Errorf("%s", got.Sum)
		}
	})
}
