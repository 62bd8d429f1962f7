package core

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestDrainWithAGroup(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{MaxInFlight: 2})
	publish(t, b, numbered("t", 0, 3)...)
	g, _ := take(m)
	b.Drain(time.Time{})
	m.Ack(g.all())
	g, ok := take(m)
	if !ok {
		t.Fatal("what was queued is not delivered while the broker drains")
	}
	if m.Ending().Reason != EndNone {
		t.Fatal("the member ended with a delivery in flight")
	}
	m.Ack(g.all())
	if r := m.Ending().Reason; r != EndShuttingDown {
		t.Errorf("ended as %s, want shutting down", r)
	}
}

// While the broker drains, no member goes as long as something may come back for it.
func TestADrainWaitsForWhatOthersHold(t *testing.T) {
	ending := func(m *Member) EndReason { return m.Ending().Reason }
	for name, test := range map[string]func(t *testing.T, b *Broker, holder, idle *Member){
		"and acknowledge": func(t *testing.T, _ *Broker, holder, idle *Member) {
			for range 3 {
				g, _ := take(holder)
				if ending(holder) != EndNone || ending(idle) != EndNone {
					t.Fatal("one has gone while there is work")
				}
				holder.Ack(g.all())
			}
		},
		"and lose": func(t *testing.T, _ *Broker, holder, idle *Member) {
			take(holder)
			holder.Close()
			for _, want := range []string{"1", "2", "3"} {
				g, _ := take(idle)
				wantPayloads(t, g.payloads, []string{want})
				idle.Ack(g.all())
			}
		},
		"and fail": func(t *testing.T, b *Broker, holder, idle *Member) {
			g, _ := take(holder)
			holder.Nack(Nack{Delay: new(time.Second)}, g.all())
			time.Sleep(time.Second)
			synctest.Wait()
			for i := range 3 {
				m := holder
				if g, _ = take(m); len(g.payloads) == 0 {
					m = idle
					g, _ = take(m)
				}
				wantPayloads(t, g.payloads, []string{fmt.Sprint(i + 1)})
				m.Ack(g.all())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, nil)
				holder, idle := join(t, b, JoinOptions{MaxInFlight: 1}), join(t, b, JoinOptions{MaxInFlight: 1})
				publish(t, b, post{"t", "1", "k"})
				g, _ := take(holder)
				publish(t, b, post{"t", "2", "k"}, post{"t", "3", "k"})
				holder.Nack(Nack{Action: NackRelease}, g.all())
				g, _ = take(holder)
				b.Drain(time.Time{})
				if ending(idle) != EndNone {
					t.Fatal("the idle one has gone, the other may yet give back what it holds")
				}
				holder.Nack(Nack{Action: NackRelease}, g.all())
				test(t, b, holder, idle)
				if got := ending(idle); got != EndShuttingDown {
					t.Errorf("the idle one ended as %s", got)
				}
				if got := ending(holder); got != EndShuttingDown && got != EndClosed {
					t.Errorf("the other one ended as %s", got)
				}
				wantBooks(t, b, 3, 0, 0)
			})
		})
	}
}

// What the last member of a lane loses is for members with other patterns: none of them goes before.
func TestADrainWaitsForWhatOtherLanesHold(t *testing.T) {
	b := newBroker(t, nil)
	holder := join(t, b, JoinOptions{Patterns: []string{"a.x"}})
	publish(t, b, post{"a.x", "1", ""})
	take(holder)
	idle, other := join(t, b, JoinOptions{Patterns: []string{"a.*"}}), join(t, b, JoinOptions{Patterns: []string{"b"}})
	b.Drain(time.Time{})
	if r := idle.Ending().Reason; r != EndNone {
		t.Fatalf("the idle one has %s, the other may yet give back what it holds", r)
	}
	holder.Close()
	g, _ := take(idle)
	wantPayloads(t, g.payloads, []string{"1"})
	idle.Ack(g.all())
	for _, m := range []*Member{idle, other} {
		if r := m.Ending().Reason; r != EndShuttingDown {
			t.Errorf("%s ended as %s", m.Patterns(), r)
		}
	}
	wantBooks(t, b, 1, 0, 0)
}

// What nobody may have any more is not waited for.
func TestADrainDoesNotWaitForALaneWithoutMembers(t *testing.T) {
	b := newBroker(t, nil)
	gone, stays := join(t, b, JoinOptions{Patterns: []string{"a"}}), join(t, b, JoinOptions{Patterns: []string{"b"}})
	publish(t, b, post{"a", "1", "k"}, post{"b", "2", "k"}) // the second waits for the first one's end
	gone.Close()
	b.Drain(time.Time{})
	if r := stays.Ending().Reason; r != EndShuttingDown {
		t.Errorf("the other member ended as %s", r)
	}
	wantBooks(t, b, 0, 2, 0)
}

// A message that waits out a delay is waited for if that is over before everybody is cut off.
func TestADrainWaitsForDelaysThatEndInTime(t *testing.T) {
	for delay, waits := range map[time.Duration]bool{5 * time.Second: true, 10 * time.Second: false, time.Hour: false} {
		for _, key := range []string{"", "k"} {
			t.Run(fmt.Sprint(delay, key), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBroker(t, nil)
					m := join(t, b, JoinOptions{})
					publish(t, b, post{"t", "1", key}, post{"t", "2", key})
					take(m)
					m.Nack(Nack{Delay: &delay}, SequenceRange{1, 1})
					m.Nack(Nack{Delay: &delay}, SequenceRange{2, 2})
					b.Drain(time.Now().Add(10 * time.Second))
					if r := m.Ending().Reason; (r == EndNone) != waits {
						t.Fatalf("the member ended as %s", r)
					}
					if !waits {
						wantBooks(t, b, 0, 2, 0)
						return
					}
					time.Sleep(delay)
					synctest.Wait()
					all, _ := takeEverything(m)
					wantPayloads(t, all, []string{"1", "2"})
					m.Ack(SequenceRange{3, 4})
					if r := m.Ending().Reason; r != EndShuttingDown {
						t.Errorf("then it ended as %s", r)
					}
				})
			})
		}
	}
}

// Whoever takes dead letters and events stays until no group can cause any more.
func TestADrainKeepsThoseWhoTakeDeadLetters(t *testing.T) {
	b := newBroker(t, nil)
	letters := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.dlq.*"}})
	events := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.event.deadletter"}})
	others := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	undertaker := join(t, b, JoinOptions{Group: "undertakers", Patterns: []string{"$tb.dlq.g"}})
	take(undertaker)
	m := join(t, b, JoinOptions{})
	publish(t, b, numbered("t", 0, 3)...)
	takeAll(others)
	g, _ := take(m)
	b.Drain(time.Time{})
	wantEnded(t, others, EndShuttingDown, 0)
	wantStaying := func() {
		t.Helper()
		takeAll(letters)
		takeAll(events)
		if letters.Ending().Reason != EndNone || events.Ending().Reason != EndNone || undertaker.Ending().Reason != EndNone {
			t.Fatalf("ended as %s, %s and %s", letters.Ending().Reason, events.Ending().Reason, undertaker.Ending().Reason)
		}
	}
	wantStaying()
	m.Nack(Nack{Action: NackReject}, SequenceRange{g.first, g.first + 1})
	if n := len(takeAll(letters)); n != 2 {
		t.Errorf("%d dead letters", n)
	}
	if n := len(takeAll(events)); n != 2 {
		t.Errorf("%d events", n)
	}
	m.Ack(g.all())
	if r := m.Ending().Reason; r != EndShuttingDown {
		t.Errorf("the member ended as %s", r)
	}
	wantStaying()
	g, _ = take(undertaker)
	if len(g.payloads) != 2 {
		t.Errorf("the group of dead letters got %q", g.payloads)
	}
	wantStaying()
	undertaker.Ack(g.all())
	if r := undertaker.Ending().Reason; r != EndShuttingDown {
		t.Errorf("its member ended as %s", r)
	}
	wantEnded(t, letters, EndShuttingDown, 0)
	wantEnded(t, events, EndShuttingDown, 0)
}

// Groups that take each other's dead letters, and their own, go when none of them has anything.
func TestADrainOfGroupsThatTakeEachOthersDeadLetters(t *testing.T) {
	b := newBroker(t, nil)
	one := join(t, b, JoinOptions{Group: "one", Patterns: []string{"t", "$tb.dlq.*"}})
	two := join(t, b, JoinOptions{Group: "two", Patterns: []string{"u", "$tb.dlq.*", "$tb.event.**"}})
	publish(t, b, post{topic: "t", payload: "1"})
	for g, ok := take(two); ok; g, ok = take(two) {
		two.Ack(g.all())
	}
	g, _ := take(one)
	b.Drain(time.Time{})
	one.Nack(Nack{Action: NackReject}, g.all())
	for _, m := range []*Member{one, two} {
		if r := m.Ending().Reason; r != EndNone {
			t.Fatalf("one ended as %s with a dead letter to come", r)
		}
		for g, ok := take(m); ok; g, ok = take(m) {
			m.Nack(Nack{Action: NackReject}, g.all())
		}
	}
	for g, ok := take(one); ok; g, ok = take(one) { // those of the events
		one.Ack(g.all())
	}
	for g, ok := take(two); ok; g, ok = take(two) {
		two.Ack(g.all())
	}
	if one.Ending().Reason != EndShuttingDown || two.Ending().Reason != EndShuttingDown {
		t.Errorf("ended as %s and %s", one.Ending().Reason, two.Ending().Reason)
	}

	idle := newBroker(t, nil)
	one = join(t, idle, JoinOptions{Group: "one", Patterns: []string{"$tb.dlq.two"}})
	two = join(t, idle, JoinOptions{Group: "two", Patterns: []string{"$tb.dlq.one"}})
	idle.Drain(time.Time{})
	if one.Ending().Reason != EndShuttingDown || two.Ending().Reason != EndShuttingDown {
		t.Errorf("idle, they ended as %s and %s", one.Ending().Reason, two.Ending().Reason)
	}
}

// askingEncoding asks something before it encodes a message.
type askingEncoding struct {
	lengthPrefixed
	ask func()
}

func (e *askingEncoding) Append(dst []byte, m *Message) []byte {
	e.ask()
	return e.lengthPrefixed.Append(dst, m)
}

// A group whose last dead letters are being published is not at rest, though it has nothing any more.
func TestADrainWaitsForLettersThatAreBeingWritten(t *testing.T) {
	e := &askingEncoding{ask: func() {}}
	b := newBroker(t, func(o *Options) { o.Encoding = e })
	letters := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.dlq.g"}})
	m := join(t, b, JoinOptions{})
	e.ask = func() { m.Ack() } // the group is looked at again
	publish(t, b, numbered("t", 0, 3)...)
	g, _ := take(m)
	b.Drain(time.Time{})
	m.Nack(Nack{Action: NackReject}, g.all())
	if n := len(takeAll(letters)); n != 3 {
		t.Errorf("%d dead letters", n)
	}
	wantEnded(t, letters, EndShuttingDown, 0)
}

// However a drain and the last verdicts meet, no dead letter is lost.
func TestNoDeadLetterIsLostInADrain(t *testing.T) {
	for range 200 {
		b := newBroker(t, nil)
		letters := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.dlq.*"}})
		undertaker := join(t, b, JoinOptions{Group: "undertakers", Patterns: []string{"$tb.dlq.*"}})
		const groups = 4
		var wg sync.WaitGroup
		for i := range groups {
			m := join(t, b, JoinOptions{Group: fmt.Sprint("g", i), Patterns: []string{"t"}})
			wg.Go(func() {
				work(m, func(g got) { m.Nack(Nack{Action: NackReject}, g.all()) })
			})
		}
		publish(t, b, numbered("t", 0, 3)...)
		read, handled := 0, 0
		wg.Go(func() {
			for {
				read += len(takeAll(letters))
				select {
				case <-letters.Wake():
				case <-letters.Done():
					return
				}
			}
		})
		wg.Go(func() {
			work(undertaker, func(g got) {
				for _, p := range g.payloads {
					if strings.Contains(p, HeaderReason) {
						handled++
					}
				}
				undertaker.Ack(g.all())
			})
		})
		b.Drain(time.Time{})
		wg.Wait()
		if read != 3*groups || handled != 3*groups {
			t.Fatalf("of %d dead letters %d were read and %d handled", 3*groups, read, handled)
		}
	}
}
