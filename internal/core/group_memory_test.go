package core

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What groups take is accounted for, however small the messages: with keys and without, in frames of their own and together.
func TestGroupsAreAccountedFor(t *testing.T) {
	for _, c := range []struct {
		name  string
		batch func(i int) *Batch
	}{
		{"alone", func(i int) *Batch { return batchOf(post{topic: "t", payload: "x"}) }},
		{"a key each", func(i int) *Batch { return batchOf(post{topic: "t", payload: "x", key: fmt.Sprint("key-", i)}) }},
		{"one key", func(i int) *Batch { return batchOf(post{topic: "t", payload: "x", key: "k"}) }},
		{"a frame of keys", func(i int) *Batch {
			var posts []post
			for j := range 100 {
				posts = append(posts, post{topic: "t", payload: "x", key: fmt.Sprint("key-", i, "-", j)})
			}
			return batchOf(posts...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroker(t, func(o *Options) { o.GroupCapacity = 10_000 })
			before := heapInUse()
			const groups = 5
			for i := range groups {
				join(t, b, JoinOptions{Group: fmt.Sprint("g", i)})
			}
			for i := 0; ; i++ {
				if r := publishBatch(t, b, c.batch(i)); r[0].Err != nil {
					break
				}
			}
			used, counted := int64(heapInUse()-before), b.Stats().Memory
			if used > counted*5/4+groups*(256<<10) {
				t.Errorf("%d KiB in use, %d KiB accounted for", used>>10, counted>>10)
			}
			if used < counted/4 {
				t.Errorf("%d KiB in use, %d KiB accounted for: far too much", used>>10, counted>>10)
			}
			runtime.KeepAlive(b)
		})
	}
}

// Groups, and the patterns of members that have gone, are bounded as long as they linger. Coming back needs no room.
func TestGroupsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxSubscriptions = 3 })
		for i := range 2 {
			join(t, b, JoinOptions{Group: fmt.Sprint("g", i)}).Close()
		}
		join(t, b, JoinOptions{Group: "g0", Patterns: []string{"other"}}).Close()
		for _, o := range []JoinOptions{{Group: "g2", Patterns: []string{"a"}}, {Group: "g1", Patterns: []string{"a"}}} {
			if _, err := b.Join(o); !errors.Is(err, ErrQuota) {
				t.Errorf("one more than there may be: %v", err)
			}
		}
		join(t, b, JoinOptions{Group: "g0", Patterns: []string{"other"}}).Close()
		subscribe(t, b, SubscribeOptions{Patterns: []string{"a"}}).Close()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := b.lanes.Load(); n != 0 || len(b.groups) != 0 {
			t.Errorf("%d lanes, %d groups are left", n, len(b.groups))
		}
		join(t, b, JoinOptions{Group: "g2"}).Close()
	})
}

// Large sets of patterns are accounted for, and given back.
func TestPatternsAreAccountedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 3 << 19 })
		set := func(tag string) []string {
			var patterns []string
			for i := range 250 {
				patterns = append(patterns, fmt.Sprintf("%s.%d.*.y.z", tag, i))
			}
			return patterns
		}
		subscribe(t, b, SubscribeOptions{Patterns: []string{"a", "b.*"}})
		wantMemory(t, b, 0)
		s := subscribe(t, b, SubscribeOptions{Patterns: set("a")})
		if got, want := b.Stats().Memory, int64(s.patterns.Size()-usualPatterns); got != want || want < 100<<10 {
			t.Errorf("%d bytes accounted for, want %d", got, want)
		}
		if _, err := b.Subscribe(SubscribeOptions{Patterns: set("b"), ID: "x"}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Subscribe(SubscribeOptions{Patterns: set("c")}); !errors.Is(err, ErrQuota) {
			t.Errorf("more than there is room for: %v", err)
		}
		subscribe(t, b, SubscribeOptions{Patterns: []string{"small"}}) // needs none
		if err := b.CloseSubscription("x"); err != nil {
			t.Fatal(err)
		}
		s.Close()
		s.Close()
		wantMemory(t, b, 0)
		m := join(t, b, JoinOptions{Patterns: set("a")})
		m.Close()
		if b.Stats().Memory == 0 {
			t.Error("the patterns of a group that lingers are not accounted for")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		wantMemory(t, b, 0)
	})
}

// The bytes of a delivery stay accounted for as long as they are being written, though they are acknowledged, or somebody else's, already.
func TestDeliveriesOfMembersAreHeld(t *testing.T) {
	for _, mode := range []AckMode{AckExplicit, AckNone} {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{Settings: GroupSettings{Ack: mode}})
		publish(t, b, post{topic: "t", payload: strings.Repeat("x", 100_000)}, post{topic: "t", payload: "y"})
		var d Delivery
		if !m.Take(&d, 1<<20) || d.Count != 2 {
			t.Fatalf("%s: took %d", mode, d.Count)
		}
		var h Hold
		d.Hold(&h)
		m.Settle(&d, true)
		m.Ack(SequenceRange{1, 2})
		if used := b.Stats().Memory; used < 100_000 || used > 100_000+2*parcelOverhead {
			t.Errorf("%s: %d bytes are accounted for", mode, used)
		}
		h.Release()
		wantMemory(t, b, 0)
	}
}

// Dead letters are made one by one: a thousand of them do not take a thousand times their room at once.
func TestDeadLettersTakeLittle(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{MaxInFlight: 1000})
	const n, size = 500, 40_000
	payload := strings.Repeat("x", size)
	for range n {
		publish(t, b, post{topic: "t", payload: payload})
	}
	var d Delivery
	for m.Take(&d, 1<<20) {
		m.Settle(&d, true)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	g := m.group
	g.mu.Lock()
	m.eachLocked(1, n, func(p *parcel) { g.buryLocked(p, "rejected", "") })
	runtime.ReadMemStats(&after)
	g.unlock()
	if took := int64(after.TotalAlloc - before.TotalAlloc); took > n*1000 {
		t.Errorf("burying %d messages of %d bytes took %d bytes under the group's lock", n, size, took)
	}
	if st := b.Stats(); st.DeadLetters != n || st.Memory != 0 {
		t.Errorf("%d dead letters, %d bytes", st.DeadLetters, st.Memory)
	}
}

// A request that names thousands of deliveries one by one does not keep others from the group for long.
func TestLongRequestsLetOthersIn(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.GroupCapacity, o.AckDeadline = 1<<16, time.Hour })
	m := join(t, b, JoinOptions{MaxInFlight: 1 << 16})
	other := join(t, b, JoinOptions{Patterns: []string{"other"}})
	const n = 1 << 15
	publish(t, b, numbered("t", 0, n)...)
	var d Delivery
	for m.Take(&d, 1<<20) {
		m.Settle(&d, true)
	}
	var ranges []SequenceRange
	for i := uint64(n); i > 0; i -= 2 { // backwards, and every other one: as dear as it gets
		ranges = append(ranges, SequenceRange{i, i})
	}
	g := m.group
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"extend", func() { m.Extend(time.Hour, ranges...) }},
		{"ack", func() { m.Ack(ranges...) }},
	} {
		done := make(chan struct{})
		var wg sync.WaitGroup
		turns := 0
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				g.mu.Lock()
				turns++
				g.mu.Unlock()
				runtime.Gosched()
			}
		})
		c.do()
		close(done)
		wg.Wait()
		if turns < 20 {
			t.Errorf("%s: others had %d turns", c.name, turns)
		}
	}
	if st := b.Groups()[0]; st.Acked != n/2 || st.InFlight != n/2 || st.Ineffective != 0 {
		t.Errorf("%d acked, %d in flight, %d without effect", st.Acked, st.InFlight, st.Ineffective)
	}
	other.Close()
}

// A group's clock does not wait for the broker's lock, unless the group is to go.
func TestAGroupsClockWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		deadline := time.Second
		m := join(t, b, JoinOptions{Settings: GroupSettings{AckDeadline: &deadline}})
		publish(t, b, post{topic: "t", payload: "x"})
		var d Delivery
		m.Take(&d, 1<<20)
		m.Settle(&d, true)
		b.mu.Lock()
		time.Sleep(2 * time.Second)
		m.group.mu.Lock()
		expired := m.group.counters.expired
		m.group.mu.Unlock()
		b.mu.Unlock()
		if expired != 1 {
			t.Errorf("%d deadlines have passed", expired)
		}
	})
}
