package core

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// One member that answers slowly traps nothing: whoever is free gets the work.
func TestASlowMemberGetsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		counts := make([]int, 3)
		var members []*Member
		for i, pause := range []time.Duration{50 * time.Millisecond, time.Millisecond, time.Millisecond} {
			m := join(t, b, JoinOptions{MaxInFlight: 1})
			members = append(members, m)
			go work(m, func(g got) {
				time.Sleep(pause)
				counts[i] += len(g.payloads)
				m.Ack(g.all())
			})
		}
		begun := time.Now()
		publish(t, b, numbered("t", 0, 5000)...)
		for groupStats(t, b, "g").Acked < 5000 {
			time.Sleep(time.Millisecond)
		}
		took := time.Since(begun)
		for _, m := range members {
			m.Close()
		}
		synctest.Wait()
		if took > 2600*time.Millisecond {
			t.Errorf("5000 messages took %v, want about 2.5 s for two fast members", took)
		}
		if counts[0] < 40 || counts[0] > 60 {
			t.Errorf("the slow member did %d of 5000, want about a hundredth: %v", counts[0], counts)
		}
	})
}

// waiting returns members of one group that have asked and got nothing.
func waiting(t *testing.T, b *Broker, n int, ack AckMode) (members []*Member) {
	t.Helper()
	for range n {
		m := join(t, b, JoinOptions{Settings: GroupSettings{Ack: ack}})
		if _, ok := take(m); ok {
			t.Fatal("there is something to take")
		}
		members = append(members, m)
	}
	return members
}

// TestIdleMembersTakeTurns: among those that have equally little to do, the one that was served longest ago is next.
func TestIdleMembersTakeTurns(t *testing.T) {
	for _, ack := range []AckMode{AckExplicit, AckNone} {
		t.Run(ack.String(), func(t *testing.T) {
			b := newBroker(t, nil)
			members := waiting(t, b, 3, ack)
			served := make([]int, 3)
			for i := range 30 {
				publish(t, b, numbered("t", i, 1)...)
				for j, m := range members {
					select {
					case <-m.Wake():
					default:
						continue
					}
					if g, ok := take(m); ok {
						served[j]++
						m.Ack(g.all())
						take(m)
					}
				}
			}
			if !slices.Equal(served, []int{10, 10, 10}) {
				t.Errorf("served %v times", served)
			}
		})
	}
}

// TestWhoMissesADeadlineComesLast: a worker that hangs must not get a message again and again until it is a dead letter, while another
// has nothing to do.
func TestWhoMissesADeadlineComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		hangs := join(t, b, JoinOptions{MaxInFlight: 20})
		works := join(t, b, JoinOptions{MaxInFlight: 5})
		take(hangs)
		take(works) // both wait now
		acks := map[*Member]bool{works: true}
		publish(t, b, numbered("t", 0, 40)...)
		first := serve(t, acks, hangs, works)
		if len(first[hangs]) == 0 {
			t.Fatal("the one that hangs got nothing: the test shows nothing")
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		second := serve(t, acks, hangs, works)
		if n := len(second[hangs]); n > 0 {
			t.Errorf("the one that hangs got %d again", n)
		}
		wantBooks(t, b, 40, 0, 0)

		// Where the others have their hands full, it is given one message, to show that it is at work again.
		acks[works] = false
		publish(t, b, numbered("t", 100, 8)...)
		third := serve(t, acks, hangs, works)
		if len(third[works]) != 5 || len(third[hangs]) != 1 {
			t.Errorf("the others got %d, the one that hangs %d; want 5, 1", len(third[works]), len(third[hangs]))
		}
		works.Ack(SequenceRange{1, 1 << 40})
		publish(t, b, numbered("t", 200, 2)...)
		if n := len(serve(t, acks, hangs, works)[hangs]); n > 0 {
			t.Errorf("it got %d while another had nothing to do", n)
		}
		works.Ack(SequenceRange{1, 1 << 40})

		// Whatever it says, it is back.
		hangs.Ack(SequenceRange{1, 1})
		publish(t, b, numbered("t", 300, 4)...)
		fourth := serve(t, map[*Member]bool{}, hangs, works)
		if len(fourth[hangs]) == 0 {
			t.Error("it gets nothing though it has spoken")
		}
	})
}

// TestAHungMemberBurnsNoAttempts: while another member is at work on long jobs, one that hangs makes no dead letters of the rest.
func TestAHungMemberBurnsNoAttempts(t *testing.T) {
	for _, attempts := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(attempts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, nil)
				s := GroupSettings{MaxAttempts: attempts}
				hangs, works := join(t, b, JoinOptions{MaxInFlight: 64, Settings: s}), join(t, b, JoinOptions{MaxInFlight: 1, Settings: s})
				take(works)
				publish(t, b, numbered("t", 0, 2)...)
				first, _ := take(hangs) // these may die with it, where they have one attempt alone
				time.Sleep(30 * time.Second)
				synctest.Wait()
				publish(t, b, numbered("t", 2, 18)...)
				given := 0
				for range 40 {
					job, ok := take(works)
					for range 4 { // the job takes two minutes
						if g, ok := take(hangs); ok {
							given++
							if len(g.payloads) != 1 || g.attempt != 1 {
								t.Errorf("the one that hangs got %q, attempt %d", g.payloads, g.attempt)
							}
						}
						time.Sleep(29 * time.Second)
						if ok {
							works.Extend(0, job.all())
						}
						synctest.Wait()
					}
					if ok {
						works.Ack(job.all())
					}
				}
				dead := uint64(0)
				if attempts == 1 {
					dead = uint64(len(first.payloads))
				}
				if st := groupStats(t, b, "g"); st.DeadLetters != dead || st.Acked != 20-dead || attempts == 1 && given > 0 || attempts > 1 && given == 0 {
					t.Errorf("%d given to the one that hangs; %+v", given, st)
				}
			})
		})
	}
}

// TestAllMissADeadline: where there is nobody better, those that have missed one go on getting messages.
func TestAllMissADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		one, two := join(t, b, JoinOptions{}), join(t, b, JoinOptions{})
		take(one)
		take(two)
		publish(t, b, numbered("t", 0, 10)...)
		serve(t, nil, one, two)
		for attempt := 2; attempt <= 5; attempt++ {
			time.Sleep(30 * time.Second)
			synctest.Wait()
			got := serve(t, nil, one, two)
			if n := len(got[one]) + len(got[two]); n != 10 {
				t.Errorf("attempt %d: %d delivered", attempt, n)
			}
		}
		// One of them goes on, extending. From then on all is for it.
		two.Extend(time.Hour, SequenceRange{1, 1 << 40})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		publish(t, b, numbered("t", 100, 10)...)
		got := serve(t, map[*Member]bool{two: true}, one, two)
		if len(got[one]) > 0 || len(got[two]) == 0 {
			t.Errorf("the one that says nothing got %d, the other %d", len(got[one]), len(got[two]))
		}
	})
}

// TestAShortQueueIsSharedOut: a burst that each member could take whole goes to all of them, however often the first one asks.
func TestAShortQueueIsSharedOut(t *testing.T) {
	for _, ack := range []AckMode{AckExplicit, AckNone} {
		t.Run(ack.String(), func(t *testing.T) {
			b := newBroker(t, nil)
			members := waiting(t, b, 3, ack)
			publish(t, b, numbered("t", 0, 50)...)
			got := make([]int, len(members))
			for again := true; again; {
				again = false
				for i, m := range members { // the first one asks until it gets no more
					for g, ok := take(m); ok; g, ok = take(m) {
						got[i] += len(g.payloads)
						again = true
					}
				}
			}
			if got[0]+got[1]+got[2] != 50 || slices.Max(got)-slices.Min(got) > 17 {
				t.Errorf("50 messages were shared out as %v", got)
			}
		})
	}
}

// TestNobodyWaitsForTheBlocked: what would be the share of a member whose stream takes nothing is for the others.
func TestNobodyWaitsForTheBlocked(t *testing.T) {
	for _, ack := range []AckMode{AckExplicit, AckNone} {
		t.Run(ack.String(), func(t *testing.T) {
			b := newBroker(t, nil)
			blocked := join(t, b, JoinOptions{Settings: GroupSettings{Ack: ack}})
			works := join(t, b, JoinOptions{Settings: GroupSettings{Ack: ack}})
			take(works)
			publish(t, b, numbered("t", 0, 2)...)
			var d Delivery
			if !blocked.Take(&d, 1<<20) {
				t.Fatal("nothing for the one that is to block")
			}
			publish(t, b, numbered("t", 2, 38)...)
			n := 0
			for g, ok := take(works); ok; g, ok = take(works) {
				n += len(g.payloads)
			}
			if want := 40 - d.Count; n != want {
				t.Errorf("it got %d, want %d", n, want)
			}
			blocked.Settle(&d, true)
		})
	}
}
