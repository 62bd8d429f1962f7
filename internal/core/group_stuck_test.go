package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestEventsOfDeadEventsEnd: a group that takes events and rejects each gets the event of a dead letter once, and none for the events that die.
func TestEventsOfDeadEventsEnd(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{Patterns: []string{"$tb.**"}})
	other := join(t, b, JoinOptions{Group: "h", Patterns: []string{"t"}})
	takeEvents := func() (n int) {
		for n < 100 {
			g, ok := take(m)
			if !ok {
				break
			}
			n += len(g.payloads)
			m.Nack(Nack{Action: NackReject}, g.all())
		}
		return n
	}
	takeEvents() // of the members that have come
	publish(t, b, post{topic: "t", payload: "x"})
	g, _ := take(other)
	other.Nack(Nack{Action: NackReject}, g.all())
	// The dead letter and its event; and the dead letter of that event.
	if n := takeEvents(); n != 3 {
		t.Errorf("%d messages came of one dead letter", n)
	}
}

// suspectComes publishes messages from the fourth to the one before `until`, with a pause after each, and reports whether busy got the suspect, though
// it is never without one of them: it acknowledges what it holds when it has the next. hung takes what it is given, and that is all.
func suspectComes(t *testing.T, b *Broker, hung, busy *Member, held got, until int, pause time.Duration) bool {
	t.Helper()
	for n := 4; n < until; n++ {
		publish(t, b, post{topic: "t", payload: fmt.Sprint(n)})
		take(hung)
		g, _ := take(busy)
		if slices.Contains(g.payloads, "suspect") {
			return true
		}
		busy.Ack(held.all())
		held = g
		time.Sleep(pause)
	}
	return false
}

// TestASuspectIsNotLeftToWhoHangs: the member that is to take a suspect next, and does nothing else until then, hangs; another one takes it.
func TestASuspectIsNotLeftToWhoHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		defer b.Close()
		publishOne := func(payload string) { publish(t, b, post{topic: "t", payload: payload}) }
		hung := join(t, b, JoinOptions{Patterns: []string{"t"}})
		publishOne("suspect")
		for range 2 {
			take(hung)
			hung.Close()
			hung = join(t, b, JoinOptions{Patterns: []string{"t"}})
		}
		busy := join(t, b, JoinOptions{Patterns: []string{"t"}})
		suspect, _ := take(hung)
		publishOne("1")
		held, _ := take(busy)
		delay := time.Second
		hung.Nack(Nack{Action: NackRetry, Delay: &delay}, suspect.all())
		publishOne("2")
		if _, ok := take(hung); !ok {
			t.Fatal("2 did not come")
		}
		time.Sleep(2 * time.Second)
		publishOne("3")
		if _, ok := take(hung); ok {
			t.Fatal("it took 3 instead of making ready for the suspect")
		}
		// It hangs from now on. The other one is done with a message when there is another, as long as there is.
		if !suspectComes(t, b, hung, busy, held, 600, time.Second) {
			t.Error("the suspect came to nobody in ten minutes")
		}
	})
}

// TestASuspectIsNotLeftToWhoHangsOnProbation: all members are late, and one of them is to take the suspect next. It hangs. Another one is heard of,
// and takes it, though it never has nothing to do.
func TestASuspectIsNotLeftToWhoHangsOnProbation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		defer b.Close()
		deadline, delay := time.Second, 1500*time.Millisecond
		joinOne := func() *Member {
			return join(t, b, JoinOptions{MaxInFlight: 4, Settings: GroupSettings{AckDeadline: &deadline, MaxAttempts: 100}})
		}
		publishOne := func(payload string) { publish(t, b, post{topic: "t", payload: payload}) }
		hung := joinOne()
		publishOne("suspect")
		for range 2 {
			take(hung)
			hung.Close()
			hung = joinOne()
		}
		suspect, _ := take(hung)
		hung.Nack(Nack{Delay: &delay}, suspect.all())
		busy := joinOne()
		publishOne("1")
		take(hung)
		publishOne("2")
		take(busy)
		time.Sleep(1200 * time.Millisecond)
		synctest.Wait() // both are late, and get 1 and 2 again
		take(hung)
		held, _ := take(busy)
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		publishOne("3")
		if g, _ := take(hung); len(g.payloads) > 0 || hung.lane.drainer != hung || !busy.late {
			t.Fatalf("it took %q instead of making ready for the suspect", g.payloads)
		}
		if !suspectComes(t, b, hung, busy, held, 200, deadline/2) {
			t.Error("the suspect came to nobody in 100 s")
		}
	})
}

// TestADrainWaitsForAKeyOfAnotherLane: a message waits behind two of its key that are for others; its member is not let go.
func TestADrainWaitsForAKeyOfAnotherLane(t *testing.T) {
	b := newBroker(t, nil)
	a := join(t, b, JoinOptions{Patterns: []string{"a"}, MaxInFlight: 1})
	last := join(t, b, JoinOptions{Patterns: []string{"b"}})
	take(last)
	publish(t, b, post{"a", "a1", "k"}, post{"a", "a2", "k"}, post{"b", "b1", "k"})
	first, _ := take(a)
	b.Drain(time.Time{})
	a.Ack(first.all())
	second, _ := take(a)
	a.Ack(second.all())
	if g, ok := take(last); !ok || g.payloads[0] != "b1" {
		t.Errorf("what came last did not come: %v", last.Ending())
	} else {
		last.Ack(g.all())
	}
	wantBooks(t, b, 3, 0, 0)
}

// TestFewInFlightPinNoFrames: jobs that take long are a small part of the frames that they came in, or what is left of them.
func TestFewInFlightPinNoFrames(t *testing.T) {
	forEver := time.Duration(0)
	for name, frame := range map[string][]post{
		"among others":  {{topic: "t", payload: "x"}, {topic: "other", payload: strings.Repeat("z", 1<<20)}},
		"acknowledged":  slices.Repeat([]post{{topic: "t", payload: strings.Repeat("z", 1000)}}, 1000),
		"one by itself": {{topic: "t", payload: strings.Repeat("z", 1000)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t, func(o *Options) { o.MaxMemory = 16 << 20 })
			m := join(t, b, JoinOptions{Patterns: []string{"t"}, MaxInFlight: 4096, Settings: GroupSettings{AckDeadline: &forEver}})
			kept := 0
			for range 500 {
				if r := publish(t, b, frame...); r[0].Err != nil {
					t.Fatalf("refused with %d in flight: %v", kept, r[0].Err)
				}
				first := uint64(0)
				for {
					g, ok := take(m)
					if !ok {
						break
					}
					all := g.all()
					if first == 0 {
						first = all.First
						kept++
						all.First++
					}
					if all.First <= all.Last {
						m.Ack(all)
					}
				}
			}
			if st := groupStats(t, b, "g"); st.InFlight != 500 {
				t.Errorf("%d in flight", st.InFlight)
			}
		})
	}
}
