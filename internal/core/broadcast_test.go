package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneCopyHoweverManyPatternsMatch(t *testing.T) {
	b := newBroker(t, nil)
	wide := subscribe(t, b, SubscribeOptions{Patterns: []string{"orders.*", "orders.**", "orders.eu", "**", "orders.eu"}})
	other := subscribe(t, b, SubscribeOptions{Patterns: []string{"orders.**"}})
	posts := numbered("orders.eu", 0, 1000)
	runs := publish(t, b, posts...)
	if runs[0].Receivers != 2 || runs[0].Accepted != 1000 || runs[0].Unrouted != 0 {
		t.Errorf("run came back as %+v, want 1000 accepted by 2 receivers", runs[0])
	}
	wantPayloads(t, takeAll(wide), payloads(posts))
	wide.Close()
	publish(t, b, post{topic: "orders.eu", payload: "after"})
	wantPayloads(t, takeAll(other), append(payloads(posts), "after"))
	if got := b.Stats().Delivered; got != 2001 {
		t.Errorf("%d messages delivered, want 2001", got)
	}
}

func TestUnroutedMessagesAreAcceptedAndCounted(t *testing.T) {
	b := newBroker(t, nil)
	subscribe(t, b, SubscribeOptions{Patterns: []string{"a.*"}})
	runs := publish(t, b, post{topic: "a.b", payload: "1"}, post{topic: "b", payload: "2"}, post{topic: "b", payload: "3"})
	if r := runs[1]; r.Err != nil || r.Accepted != 2 || r.Unrouted != 2 || r.Receivers != 0 {
		t.Errorf("unrouted run came back as %+v", r)
	}
	if st := b.Stats(); st.Published != 3 || st.Unrouted != 2 {
		t.Errorf("published %d, unrouted %d; want 3 and 2", st.Published, st.Unrouted)
	}
}

func TestRunsThatTheCallerRefusedArePassedOver(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	batch := batchOf(post{topic: "a", payload: "1"}, post{topic: "b", payload: "bad"}, post{topic: "a", payload: "2"})
	batch.Runs[1].Err = ErrTopicInvalid
	publishBatch(t, b, batch)
	wantPayloads(t, takeAll(s), []string{"1", "2"})
	if st := b.Stats(); st.Published != 2 || st.Refused != 1 {
		t.Errorf("published %d, refused %d; want 2 and 1", st.Published, st.Refused)
	}
	wantMemory(t, b, 0)
}

func TestDeliveryNumbersAndFrameSizes(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	var want []string
	for i := range 50 {
		posts := numbered("t", i*10, 10)
		posts[3].payload = strings.Repeat("x", 700)
		publish(t, b, posts...)
		want = append(want, payloads(posts)...)
	}
	var d Delivery
	var got []string
	next := uint64(1)
	for s.Take(&d, 1024) {
		if d.FirstSequence != next {
			t.Fatalf("delivery begins with %d, want %d", d.FirstSequence, next)
		}
		if d.Bytes > 1024 {
			t.Fatalf("delivery of %d bytes, want at most 1024", d.Bytes)
		}
		if n := len(records(&d)); n != d.Count {
			t.Fatalf("%d records, Count says %d", n, d.Count)
		}
		next += uint64(d.Count)
		got = append(got, records(&d)...)
		s.Settle(&d, true)
	}
	wantPayloads(t, got, want)
	wantMemory(t, b, 0)
}

func TestAMessageLargerThanAFrameGoesAlone(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	big := strings.Repeat("b", 5000)
	publish(t, b, post{topic: "t", payload: "1"}, post{topic: "t", payload: big}, post{topic: "t", payload: "2"})
	var d Delivery
	var counts []int
	for s.Take(&d, 1024) {
		counts = append(counts, d.Count)
		s.Settle(&d, true)
	}
	if fmt.Sprint(counts) != "[1 1 1]" {
		t.Errorf("deliveries of %v messages, want one each", counts)
	}
}

func TestEvictionOnOverflow(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.ConsumerCapacity = 10 })
	slow := subscribe(t, b, SubscribeOptions{ID: "slow", Patterns: []string{"**"}})
	healthy := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	var got []string
	for i := range 11 {
		publish(t, b, post{topic: "t", payload: fmt.Sprint(i)})
		got = append(got, takeAll(healthy)...)
	}
	wantEnded(t, slow, EndEvicted, 11)
	if text := slow.Ending().Text; text != "queue full (10)" {
		t.Errorf("the ending says %q", text)
	}
	wantPayloads(t, got, payloads(numbered("t", 0, 11)))
	wantMemory(t, b, 0)
	if takeAll(slow) != nil {
		t.Error("an evicted subscription delivers")
	}
	st := b.Stats()
	if st.Evictions != 1 || st.Lost != 11 || st.Subscriptions != 1 {
		t.Errorf("stats after the eviction: %+v", st)
	}
	back := subscribe(t, b, SubscribeOptions{ID: "slow", Patterns: []string{"**"}})
	if p := back.Previous(); p == nil || p.Reason != EndEvicted || p.Lost != 11 {
		t.Errorf("on its return the subscription is told %+v, want its eviction", p)
	}
	again := subscribe(t, b, SubscribeOptions{ID: "slow", Patterns: []string{"**"}})
	if again.Previous() != nil {
		t.Error("an eviction is told twice")
	}
	wantEnded(t, back, EndReplaced, 0)
}

func TestExactlyFullIsNotOverfull(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.ConsumerCapacity = 1000 })
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	for round := range 20 {
		posts := numbered("t", round*1000, 1000)
		publish(t, b, posts[:1]...)
		publish(t, b, posts[1:400]...)
		publish(t, b, posts[400:]...)
		wantPayloads(t, takeAll(s), payloads(posts))
	}
}

func TestADeliveryUnderWayAtTheEvictionCountsOnce(t *testing.T) {
	for _, written := range []bool{true, false} {
		t.Run(fmt.Sprintf("written=%v", written), func(t *testing.T) {
			b := newBroker(t, func(o *Options) { o.ConsumerCapacity = 4 })
			s := subscribe(t, b, SubscribeOptions{ID: "s", Patterns: []string{"**"}})
			publish(t, b, numbered("t", 0, 2)...)
			var d Delivery
			s.Take(&d, 1<<20)
			for i := range 5 {
				publish(t, b, post{topic: "t", payload: fmt.Sprint(i)})
			}
			wantEnded(t, s, EndEvicted, 5)
			s.Settle(&d, written)
			want := Ending{Lost: 5, LastSequence: 2}
			if !written {
				want = Ending{Lost: 7, LastSequence: 0}
			}
			if e := s.Ending(); e.Lost != want.Lost || e.LastSequence != want.LastSequence {
				t.Errorf("lost %d after delivery %d, want %d after %d", e.Lost, e.LastSequence, want.Lost, want.LastSequence)
			}
			back := subscribe(t, b, SubscribeOptions{ID: "s", Patterns: []string{"**"}})
			if p := back.Previous(); p == nil || p.Lost != want.Lost {
				t.Errorf("on its return it is told %+v, want %d lost", p, want.Lost)
			}
			if st := b.Stats(); st.Delivered+st.Lost != 7 {
				t.Errorf("delivered %d and lost %d do not add up to 7", st.Delivered, st.Lost)
			}
			wantMemory(t, b, 0)
		})
	}
}

func TestDropPolicies(t *testing.T) {
	for _, c := range []struct {
		name    string
		policy  OverflowPolicy
		publish [][]post
		want    string // deliveries as "dropped:payloads"
	}{
		{"oldest, one by one", OverflowDropOldest, [][]post{numbered("t", 0, 4), numbered("t", 4, 1), numbered("t", 5, 1)}, "2:2,3,4,5"},
		{"oldest, a run that splits", OverflowDropOldest, [][]post{numbered("t", 0, 3), numbered("t", 3, 3)}, "2:2,3,4,5"},
		{"oldest, a run larger than the queue", OverflowDropOldest, [][]post{numbered("t", 0, 2), numbered("t", 2, 9)}, "7:7,8,9,10"},
		{"newest, one by one", OverflowDropNewest, [][]post{numbered("t", 0, 4), numbered("t", 4, 1), numbered("t", 5, 1)}, "0:0,1,2,3"},
		{"newest, a run that splits", OverflowDropNewest, [][]post{numbered("t", 0, 3), numbered("t", 3, 3)}, "0:0,1,2,3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroker(t, nil)
			s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}, Overflow: c.policy, Capacity: 4})
			total := 0
			for _, posts := range c.publish {
				publish(t, b, posts...)
				total += len(posts)
			}
			var d Delivery
			s.Take(&d, 1<<20)
			got := fmt.Sprintf("%d:%s", d.DroppedBefore, strings.Join(records(&d), ","))
			s.Settle(&d, true)
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if st := b.Stats(); int(st.Dropped+st.Delivered) != total {
				t.Errorf("dropped %d and delivered %d do not add up to %d", st.Dropped, st.Delivered, total)
			}
			wantMemory(t, b, 0)
		})
	}
}

func TestDropNewestTellsWithTheNextMessage(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}, Overflow: OverflowDropNewest, Capacity: 2})
	publish(t, b, numbered("t", 0, 5)...)
	wantPayloads(t, takeAll(s), []string{"0", "1"})
	publish(t, b, post{topic: "t", payload: "5"})
	var d Delivery
	s.Take(&d, 1<<20)
	if d.DroppedBefore != 3 || d.FirstSequence != 3 {
		t.Errorf("%d dropped before delivery %d, want 3 before 3", d.DroppedBefore, d.FirstSequence)
	}
	s.Settle(&d, true)
}

// What an overflow policy dropped is told at the end, if no delivery has told it before.
func TestTheEndTellsWhatWasDropped(t *testing.T) {
	for _, test := range []struct {
		overflow                          OverflowPolicy
		end                               func(*Subscription)
		take, written                     bool
		told, dropped, lost, lastSequence uint64
	}{
		{OverflowDropNewest, (*Subscription).Leave, false, false, 0, 3, 2, 0},
		{OverflowDropNewest, (*Subscription).Revoke, true, true, 0, 3, 0, 2},
		{OverflowDropNewest, (*Subscription).Leave, true, false, 0, 3, 2, 0},
		{OverflowDropNewest, (*Subscription).drain, true, true, 0, 3, 0, 2},
		{OverflowDropOldest, (*Subscription).Leave, false, false, 0, 3, 2, 0},
		{OverflowDropOldest, (*Subscription).Leave, true, true, 3, 0, 0, 2},
		{OverflowDropOldest, (*Subscription).Leave, true, false, 3, 3, 2, 0},
	} {
		b := newBroker(t, nil)
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}, Capacity: 2, Overflow: test.overflow})
		publish(t, b, numbered("t", 0, 5)...)
		var d Delivery
		if test.take {
			s.Take(&d, 1<<20)
		}
		told := d.DroppedBefore
		test.end(s)
		s.Settle(&d, test.written)
		if e := s.Ending(); told != test.told || e.Dropped != test.dropped || e.Lost != test.lost || e.LastSequence != test.lastSequence {
			t.Errorf("%+v: told %d, then %+v", test, told, e)
		}
	}
}

// A drop between two messages in the queue, which goes with it.
func TestTheEndTellsWhatWasDroppedInTheMiddle(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}, Capacity: 2, Overflow: OverflowDropNewest})
	publish(t, b, numbered("t", 0, 5)...) // 0 and 1 are queued, three are dropped
	var d Delivery
	s.Take(&d, 1) // 0
	s.Settle(&d, true)
	publish(t, b, numbered("t", 5, 3)...) // 5 is queued, two are dropped
	s.Close()
	if e := s.Ending(); e.Dropped != 5 || e.Lost != 2 || e.LastSequence != 1 {
		t.Errorf("%+v", e)
	}
}

// A queue entry has 32 bits for what was dropped before it; a frozen subscription gets there within hours.
func TestDropsAreCountedBeyond32Bits(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}, Capacity: 1, Overflow: OverflowDropNewest})
	publish(t, b, numbered("t", 0, 4)...)
	s.droppedBack += 1 << 32
	var told uint64
	var d Delivery
	for i := range 3 {
		if !s.Take(&d, 1) {
			t.Fatal("nothing to take")
		}
		told += d.DroppedBefore
		s.Settle(&d, true)
		publish(t, b, numbered("t", 4+i, 1)...)
	}
	if want := uint64(1<<32 + 3); told != want {
		t.Errorf("%d dropped, want %d", told, want)
	}
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.ConsumerCapacityBytes = 4096 })
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"big"}})
	kib := strings.Repeat("x", 1024-2-len("big")-2)
	for range 4 {
		publish(t, b, post{topic: "big", payload: kib})
	}
	if n := len(takeAll(s)); n != 4 {
		t.Fatalf("%d messages fit into 4 KiB, want 4", n)
	}
	publish(t, b, post{topic: "big", payload: strings.Repeat("x", 10_000)})
	if n := len(takeAll(s)); n != 1 {
		t.Fatal("an empty queue did not take a message larger than itself")
	}
	for range 5 {
		publish(t, b, post{topic: "big", payload: kib})
	}
	wantEnded(t, s, EndEvicted, 5)
	if text := s.Ending().Text; text != "queue full (4096 bytes)" {
		t.Errorf("the ending says %q", text)
	}
}

func TestTakeoverOfALiveID(t *testing.T) {
	b := newBroker(t, nil)
	first := subscribe(t, b, SubscribeOptions{ID: "w1", Patterns: []string{"a"}})
	second := subscribe(t, b, SubscribeOptions{ID: "w1", Patterns: []string{"a"}})
	wantEnded(t, first, EndReplaced, 0)
	first.Close() // the displaced connection's clean-up comes late and must not touch its successor
	publish(t, b, post{topic: "a", payload: "1"})
	wantPayloads(t, takeAll(second), []string{"1"})
	if n := b.Stats().Subscriptions; n != 1 {
		t.Errorf("%d subscriptions, want 1", n)
	}
}

func TestMadeUpIDsAreUnique(t *testing.T) {
	b := newBroker(t, nil)
	seen := make(map[string]bool)
	for range 1000 {
		id := subscribe(t, b, SubscribeOptions{Patterns: []string{"a"}}).ID()
		if id == "" || seen[id] {
			t.Fatalf("id %q is empty or was given before", id)
		}
		seen[id] = true
	}
}

func TestSubscribeRefusals(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.MaxSubscriptions = 2 })
	for _, c := range []struct {
		name string
		o    SubscribeOptions
		want error
	}{
		{"no pattern", SubscribeOptions{}, ErrPatternInvalid},
		{"one good, one bad pattern", SubscribeOptions{Patterns: []string{"a", "["}}, ErrPatternInvalid},
		{"only exclusions", SubscribeOptions{Patterns: []string{"!a"}}, ErrPatternInvalid},
		{"id with a control character", SubscribeOptions{Patterns: []string{"a"}, ID: "a\nb"}, ErrProtocol},
		{"client name that is not UTF-8", SubscribeOptions{Patterns: []string{"a"}, Client: "\xff"}, ErrProtocol},
		{"id too long", SubscribeOptions{Patterns: []string{"a"}, ID: strings.Repeat("x", 129)}, ErrProtocol},
		{"policy for groups", SubscribeOptions{Patterns: []string{"a"}, Overflow: OverflowReject}, ErrProtocol},
		{"unknown policy", SubscribeOptions{Patterns: []string{"a"}, Overflow: 99}, ErrProtocol},
		{"negative capacity", SubscribeOptions{Patterns: []string{"a"}, Capacity: -1}, ErrProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := b.Subscribe(c.o); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if n := b.Stats().Subscriptions; n != 0 {
				t.Errorf("%d subscriptions after a refusal", n)
			}
		})
	}
	first := subscribe(t, b, SubscribeOptions{Patterns: []string{"a"}, Capacity: 1 << 30})
	if slots, _ := first.Capacity(); slots != b.Options().ConsumerCapacity {
		t.Errorf("capacity %d, want the broker's", slots)
	}
	subscribe(t, b, SubscribeOptions{Patterns: []string{"a"}, ID: "x"})
	if _, err := b.Subscribe(SubscribeOptions{Patterns: []string{"a"}}); !errors.Is(err, ErrQuota) {
		t.Errorf("third of two subscriptions: %v", err)
	}
	subscribe(t, b, SubscribeOptions{Patterns: []string{"a"}, ID: "x"}) // a takeover needs no room
}

func TestMaxMemory(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
	a := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	c := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	quarter := strings.Repeat("x", 250_000)
	for range 4 {
		if r := publish(t, b, post{topic: "t", payload: quarter}); r[0].Err != nil {
			t.Fatalf("refused below the limit although shared bytes count once: %v", r[0].Err)
		}
	}
	r := publish(t, b, post{topic: "t", payload: quarter}, post{topic: "u", payload: quarter})
	for i := range r {
		if !errors.Is(r[i].Err, ErrMemory) || r[i].Accepted != 0 {
			t.Fatalf("past the limit run %d came back as %+v, want ErrMemory", i, r[i])
		}
	}
	if got := len(takeAll(a)); got != 4 {
		t.Fatalf("%d messages queued, want 4: a refused publish is queued nowhere", got)
	}
	a.Close()
	if r := publish(t, b, post{topic: "t", payload: quarter}); !errors.Is(r[0].Err, ErrMemory) {
		t.Fatal("memory was freed while another subscription holds it")
	}
	c.Close()
	wantMemory(t, b, 0)
	if r := publish(t, b, post{topic: "t", payload: quarter}); r[0].Err != nil {
		t.Fatalf("refused after memory was freed: %v", r[0].Err)
	}
	if st := b.Stats(); st.Refused != 3 {
		t.Errorf("%d refused, want 3", st.Refused)
	}
}

func TestASmallMessageDoesNotPinALargeFrame(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"rare"}})
	for i := range 100 {
		publish(t, b, post{topic: "common", payload: strings.Repeat("x", 60_000)}, post{topic: "rare", payload: fmt.Sprint(i)}, post{topic: "common", payload: "y"})
	}
	if got := b.Stats().Memory; got > 100_000 {
		t.Errorf("100 small messages hold %d bytes", got)
	}
	wantPayloads(t, takeAll(s), payloads(numbered("", 0, 100)))
	wantMemory(t, b, 0)
}

func TestAlternatingTopicsBecomeOneEntryAgain(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	var posts []post
	for i := range 1000 {
		posts = append(posts, post{topic: fmt.Sprintf("topic.%d", i%7), payload: fmt.Sprint(i)})
	}
	publish(t, b, posts...)
	var d Delivery
	s.Take(&d, 1<<20)
	if len(d.Pieces) != 1 || d.Count != 1000 {
		t.Errorf("1000 messages of one frame came in %d pieces of %d messages, want one piece", len(d.Pieces), d.Count)
	}
	wantPayloads(t, records(&d), payloads(posts))
	s.Settle(&d, true)
}

func TestLaggingIsToldAtMostOnceASecond(t *testing.T) {
	clock := newFakeClock()
	b := newBroker(t, func(o *Options) { o.Clock = clock })
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}, Capacity: 100})
	warned := func() *Lagging {
		var d Delivery
		s.Take(&d, 1<<20)
		defer s.Settle(&d, true)
		return d.Lagging
	}
	publish(t, b, numbered("t", 0, 75)...)
	if w := warned(); w != nil {
		t.Errorf("warned at three quarters: %+v", *w)
	}
	publish(t, b, numbered("t", 0, 76)...)
	if w := warned(); w == nil || w.Queued != 76 || w.Capacity != 100 || w.QueuedBytes == 0 {
		t.Errorf("past three quarters the warning is %+v", w)
	}
	publish(t, b, numbered("t", 0, 80)...)
	if w := warned(); w != nil {
		t.Errorf("warned twice in a second: %+v", *w)
	}
	clock.advance(lagInterval)
	publish(t, b, numbered("t", 0, 80)...)
	if warned() == nil {
		t.Error("not warned again after a second")
	}
}

// A queue of large messages is full of bytes long before it is full of messages.
func TestLaggingInBytesIsTold(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.ConsumerCapacityBytes = 1 << 10 })
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}})
	large := post{topic: "t", payload: strings.Repeat("x", 300)}
	publish(t, b, large, large)
	state := func() string { return observe(t, b, Query{View: ViewSubscriptions}).Subscriptions[0].State }
	if got := state(); got != StateActive {
		t.Errorf("%s with a queue of 60%%", got)
	}
	publish(t, b, large)
	if got := state(); got != StateLagging {
		t.Errorf("%s with a queue of 90%%", got)
	}
	var d Delivery
	if !s.Take(&d, 1) || d.Lagging == nil || d.Lagging.Queued != 3 {
		t.Errorf("told %+v, want 3 messages", d.Lagging)
	}
	s.Settle(&d, true)
}

func TestDrainAndClose(t *testing.T) {
	b := newBroker(t, nil)
	busy := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	publish(t, b, numbered("t", 0, 3)...)
	idle := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	frozen := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	publish(t, b, numbered("t", 3, 2)...)
	takeAll(idle)
	b.Drain(time.Time{})
	wantEnded(t, idle, EndShuttingDown, 0)
	batch := batchOf(post{topic: "t", payload: "late"})
	if err := b.Publish(context.Background(), batch); !errors.Is(err, ErrDraining) || !errors.Is(batch.Runs[0].Err, ErrDraining) {
		t.Errorf("publish while draining: %v", err)
	}
	if _, err := b.Subscribe(SubscribeOptions{Patterns: []string{"a"}}); !errors.Is(err, ErrDraining) {
		t.Errorf("subscribe while draining: %v", err)
	}
	wantPayloads(t, takeAll(busy), payloads(numbered("t", 0, 5)))
	wantEnded(t, busy, EndShuttingDown, 0)
	b.Close()
	wantEnded(t, frozen, EndShuttingDown, 2)
	wantMemory(t, b, 0)
}

// An empty queue takes any one message, alone or as the first of several, whatever its policy is.
func TestAnEmptyQueueTakesAnyOneMessage(t *testing.T) {
	large := strings.Repeat("x", 5000)
	for _, policy := range []OverflowPolicy{OverflowEvict, OverflowDropOldest, OverflowDropNewest} {
		for _, more := range []int{0, 1} {
			t.Run(fmt.Sprint(policy, " and ", more), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBroker(t, func(o *Options) { o.ConsumerCapacityBytes, o.GroupCapacityBytes = 1<<10, 1<<10 })
					s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}, Overflow: policy})
					settings := GroupSettings{Overflow: policy}
					if policy == OverflowEvict {
						settings.Overflow = OverflowReject
					}
					m := join(t, b, JoinOptions{Patterns: []string{"t"}, Settings: settings})
					publish(t, b, slices.Repeat([]post{{topic: "t", payload: large}}, 1+more)...)
					if n, _ := s.Queued(); n != 1 && policy != OverflowEvict {
						t.Errorf("%d messages are queued", n)
					}
					if n := m.group.waiting(); n != 1 {
						t.Errorf("%d messages are queued at a group", n)
					}
				})
			})
		}
	}
}
