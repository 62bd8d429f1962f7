package core

import (
	"fmt"
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
