package core

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// wide is a frame with a message on each of some topics, of a size each, and much that is for others.
func wide(rest int, size int, topics ...string) []post {
	var posts []post
	for _, topic := range topics {
		posts = append(posts, post{topic: topic, payload: strings.Repeat("x", size)})
	}
	return append(posts, post{topic: "rest", payload: strings.Repeat("z", rest)})
}

// Those who hold the same small part of a large frame share one copy of it.
func TestACopyIsShared(t *testing.T) {
	const receivers, size, rest = 200, 90_000, 300_000
	for _, kind := range []string{"subscriptions", "groups"} {
		t.Run(kind, func(t *testing.T) {
			b := newBroker(t, nil)
			var subs []*Subscription
			var members []*Member
			for i := range receivers {
				if kind == "groups" {
					members = append(members, join(t, b, JoinOptions{Group: fmt.Sprint("g", i), Patterns: []string{"a"}}))
				} else {
					subs = append(subs, subscribe(t, b, SubscribeOptions{Patterns: []string{"a"}}))
				}
			}
			publish(t, b, wide(rest, size, "a")...)
			publish(t, b, post{topic: "a"})
			most := int64(size + 1000)
			if kind == "groups" {
				most += receivers * 2 * parcelOverhead
			}
			if used := b.Stats().Memory; used > most {
				t.Errorf("%d bytes are held of a message of %d, the most is %d", used, size, most)
			}
			for _, s := range subs {
				if got := takeAll(s); len(got) != 2 || len(got[0]) != size {
					t.Fatalf("%d messages", len(got))
				}
			}
			for _, m := range members {
				got, last := takeEverything(m)
				if len(got) != 2 || len(got[0]) != size {
					t.Fatalf("%d messages", len(got))
				}
				m.Ack(SequenceRange{1, last.first + 1})
			}
			wantMemory(t, b, 0)
		})
	}
}

// Two small messages far from each other keep a large frame no more than one does.
func TestSeparatedPiecesPinNoFrame(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"a"}})
	m := join(t, b, JoinOptions{Patterns: []string{"a"}, MaxInFlight: 100})
	for range 50 {
		publish(t, b, append(wide(500_000, 10, "a"), wide(500_000, 10, "a")...)...)
	}
	if used := b.Stats().Memory; used > 1_200_000 {
		t.Errorf("100 small messages hold %d bytes", used)
	}
	if got := takeAll(s); len(got) != 100 {
		t.Errorf("%d messages", len(got))
	}
	_, last := takeEverything(m)
	m.Ack(SequenceRange{1, last.first + 99})
	wantMemory(t, b, 0)
}

// Those who hold different parts of a frame do not make many times the frame of it.
func TestCopiesTakeNoMoreThanTheFrame(t *testing.T) {
	const topics, size = 100, 10_000
	b := newBroker(t, nil)
	var names []string
	var subs []*Subscription
	for i := range topics {
		names = append(names, fmt.Sprint("t", i))
	}
	for i := range topics / 2 { // each has some 40 of 100 neighbours
		subs = append(subs, subscribe(t, b, SubscribeOptions{Patterns: append([]string{"next"}, names[i:i+topics*2/5]...)}))
	}
	publish(t, b, wide(0, size, names...)...)
	publish(t, b, post{topic: "next"})
	if used := b.Stats().Memory; used > 2*topics*(size+100) {
		t.Errorf("a frame of %d bytes takes %d", topics*size, used)
	}
	for _, s := range subs {
		if got := takeAll(s); len(got) != 1+topics*2/5 {
			t.Errorf("%d messages", len(got))
		}
	}
	wantMemory(t, b, 0)
}

// Copies are made within the limit, and where there is no room the frame stays.
func TestCopiesNeedRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1 << 20
		b := newBroker(t, func(o *Options) { o.MaxMemory = limit })
		join(t, b, JoinOptions{Patterns: []string{"*"}}) // holds the frames whole
		var subs []*Subscription
		for i := range 20 {
			subs = append(subs, subscribe(t, b, SubscribeOptions{Patterns: []string{fmt.Sprint("t", i), "next"}}))
		}
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprint("t", i))
		}
		publish(t, b, wide(limit-500_000, 20_000, names...)...)
		publish(t, b, post{topic: "next"})
		if used := b.Stats().Memory; used > limit+copyRoom || used < limit {
			t.Errorf("%d bytes are held", used)
		}
		for _, s := range subs {
			if got := takeAll(s); len(got) != 2 || len(got[0]) != 20_000 {
				t.Errorf("%d messages", len(got))
			}
		}
	})
}

// Subscriptions that wait with a small message of a large frame, and to which nothing comes after it, do not fill the memory.
func TestLastMessagesPinNoFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, func(o *Options) { o.MaxMemory = 4 << 20 })
		for i := range 100 {
			subscribe(t, b, SubscribeOptions{Patterns: []string{fmt.Sprint("t", i)}})
		}
		time.Sleep(time.Second)
		for i := range 100 {
			if r := publish(t, b, wide(500_000, 10, fmt.Sprint("t", i))...); r[0].Err != nil {
				t.Fatalf("%d: %v", i, r[0].Err)
			}
		}
		if st := b.Stats(); st.Evictions != 0 || st.QueuedMessages != 100 {
			t.Errorf("%d evicted, %d queued", st.Evictions, st.QueuedMessages)
		}
	})
}

// Copies are made and let go of by many at once.
func TestCopiesAreMadeAndReleasedAtOnce(t *testing.T) {
	m := &memory{limit: 1 << 30}
	data := make([]byte, 1<<20)
	for range 50 {
		f := newFrame(m, data)
		var wg sync.WaitGroup
		for range 8 {
			f.retain()
			wg.Go(func() {
				for i := range uint32(200) {
					at := 100 * (i % 7)
					c := f.copyOf(at, at+50)
					if c == nil || len(c.data) != 50 {
						t.Error("no copy")
						return
					}
					c.release()
				}
				f.release()
			})
		}
		f.release()
		wg.Wait()
		if used := m.used.Load(); used != 0 {
			t.Fatalf("%d bytes are left", used)
		}
	}
}
