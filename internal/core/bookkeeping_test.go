package core

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// keyedPosts are n messages with a key each, of so many bytes.
func keyedPosts(n, length int) []post {
	posts := make([]post, n)
	for i := range posts {
		key := fmt.Sprint(i)
		posts[i] = post{topic: "t", key: key + strings.Repeat("k", max(0, length-len(key)))}
	}
	return posts
}

// One small frame that many groups would take many times the memory for is queued nowhere.
func TestWhatGroupsKeepIsAskedFor(t *testing.T) {
	const groups, limit = 150, 8 << 20
	for _, c := range []struct {
		name  string
		posts []post
	}{
		{"keys", keyedPosts(1000, 0)},
		{"long keys", keyedPosts(400, 250)},
		{"no keys", numbered("t", 0, 1000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroker(t, func(o *Options) { o.MaxMemory = limit })
			s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}})
			for i := range groups {
				join(t, b, JoinOptions{Group: fmt.Sprint("g", i)})
			}
			runs := publish(t, b, append(c.posts, post{topic: "u", payload: "x"})...)
			if r := runs[0]; !errors.Is(r.Err, ErrMemory) || r.Accepted != 0 {
				t.Errorf("%+v", r)
			}
			if r := runs[1]; r.Err != nil || r.Receivers != groups {
				t.Errorf("the next run: %+v", r)
			}
			if n, _ := s.Queued(); n != 0 {
				t.Errorf("%d messages are queued at a subscription", n)
			}
			for _, st := range b.Groups() {
				if st.Accepted != 1 || st.Pending != 1 {
					t.Fatalf("%+v", st)
				}
			}
			if used, most := b.Stats().Memory, int64(groups*(parcelOverhead+1)+150_000); used > most {
				t.Errorf("%d bytes are held, want no more than %d", used, most)
			}
			if st := b.Stats(); st.Refused != uint64(len(c.posts)) || st.Published != 1 {
				t.Errorf("%d refused, %d published", st.Refused, st.Published)
			}
		})
	}
}

// What is asked for is what the keys may take, and not the payload.
func TestPayloadsAreAskedForOnce(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.MaxMemory = 1 << 20 })
	for i := range 20 {
		join(t, b, JoinOptions{Group: fmt.Sprint("g", i)})
	}
	payload := strings.Repeat("x", 300_000)
	if r := publish(t, b, post{topic: "t", payload: payload, key: "k"}, post{topic: "t", payload: payload}); r[0].Err != nil || r[0].Receivers != 20 {
		t.Errorf("%+v", r[0])
	}
	want := int64(20*(2*parcelOverhead+keyOverhead+1)) + frameOverhead + 2*int64(len(payload))
	if used := b.Stats().Memory; used < want || used > want+20 {
		t.Errorf("%d bytes are accounted for, want %d", used, want)
	}
}

// Whatever members say of single messages, what they keep takes no more than was asked for when it came, and that is what it takes.
func TestSplitMessagesTakeNoMore(t *testing.T) {
	const groups, n = 8, 6_000
	hour := time.Hour
	for _, c := range []struct {
		name string
		say  func(m *Member, ranges []SequenceRange)
	}{
		{"nack", func(m *Member, ranges []SequenceRange) { m.Nack(Nack{Delay: &hour}, ranges...) }},
		{"release", func(m *Member, ranges []SequenceRange) { m.Nack(Nack{Action: NackRelease}, ranges...) }},
		{"ack", func(m *Member, ranges []SequenceRange) { m.Ack(ranges...) }},
		{"extend", func(m *Member, ranges []SequenceRange) { m.Extend(hour, ranges...) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroker(t, nil)
			idle := int64(heapInUse())
			var members []*Member
			for i := range groups {
				members = append(members, join(t, b, JoinOptions{Group: fmt.Sprint("g", i), MaxInFlight: n}))
			}
			var ranges []SequenceRange
			for i := 0; i < n; i += 2000 {
				publish(t, b, numbered("t", i, 2000)...)
				for _, m := range members {
					takeEverything(m)
				}
			}
			for i := uint64(1); i <= n; i += 2 {
				ranges = append(ranges, SequenceRange{i, i})
			}
			before := b.Stats().Memory
			for _, m := range members {
				c.say(m, ranges)
			}
			counted := b.Stats().Memory
			copies := int64(n) * (copyOverhead + 20) // of the parts of a frame, which all groups share
			if counted > before+copies {
				t.Errorf("%d bytes are accounted for, %d before", counted, before)
			}
			if used := int64(heapInUse()) - idle; used > counted*5/4+groups*(256<<10) {
				t.Errorf("%d KiB in use, %d KiB accounted for", used>>10, counted>>10)
			}
			runtime.KeepAlive(b)
		})
	}
}

// A publisher with patience waits for the room that groups need, frozen subscriptions go for it, and who has waited in vain is refused.
func TestRoomForGroupsIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1 << 20
		b := newBroker(t, func(o *Options) { o.MaxMemory = limit })
		m := join(t, b, JoinOptions{MaxInFlight: 1 << 16, Patterns: []string{"t"}})
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"s"}})
		fill := func() (n int) {
			for publish(t, b, numbered("t", 0, 100)...)[0].Err == nil {
				n += 100
			}
			return n
		}
		n := fill()
		if n < limit/(parcelOverhead+30) || n > limit/parcelOverhead {
			t.Fatalf("%d messages fill %d bytes", n, limit)
		}
		patient := func() (Run, time.Duration) {
			batch := batchOf(numbered("t", 0, 200)...)
			batch.MaxWait = time.Minute
			begun := time.Now()
			return publishBatch(t, b, batch)[0], time.Since(begun)
		}
		time.AfterFunc(time.Second, func() {
			takeEverything(m)
			m.Ack(SequenceRange{1, 1000})
		})
		if r, waited := patient(); r.Err != nil || waited != time.Second {
			t.Errorf("%+v after %s", r, waited)
		}
		publish(t, b, post{topic: "s", payload: strings.Repeat("x", 100_000)})
		fill()
		if s.Ending().Reason != EndNone {
			t.Fatal("evicted though it is young")
		}
		time.Sleep(time.Second)
		if r := publish(t, b, numbered("t", 0, 100)...); r[0].Err != nil || s.Ending().Reason != EndEvicted {
			t.Errorf("%+v, the subscription %+v", r[0], s.Ending())
		}
		fill()
		if r, waited := patient(); !errors.Is(r.Err, ErrMemory) || waited != time.Minute {
			t.Errorf("%+v after %s", r, waited)
		}
		m.Close()
		time.Sleep(2 * b.options.GroupLinger)
		synctest.Wait()
		wantMemory(t, b, 0)
	})
}

// A delivery of tiny messages that came one by one is of a bounded number of pieces; nothing is left behind by that.
func TestADeliveryHasFewPieces(t *testing.T) {
	const n = 2*maxPieces + 10
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"t"}})
	m := join(t, b, JoinOptions{Patterns: []string{"t"}, MaxInFlight: n})
	for i := range n {
		publish(t, b, post{topic: "t", payload: fmt.Sprint(i)})
	}
	for name, take := range map[string]func(d *Delivery) bool{
		"subscription": func(d *Delivery) bool { return s.Take(d, 1<<20) },
		"member":       func(d *Delivery) bool { return m.Take(d, 1<<20) },
	} {
		var d Delivery
		var got []string
		for take(&d) {
			if len(d.Pieces) > maxPieces {
				t.Errorf("%s: %d pieces", name, len(d.Pieces))
			}
			got = append(got, records(&d)...)
			if name == "member" {
				m.Settle(&d, true)
			} else {
				s.Settle(&d, true)
			}
		}
		wantPayloads(t, got, payloads(numbered("t", 0, n)))
	}
}
