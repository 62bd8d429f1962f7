package core

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		dlq := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.dlq.*"}})
		blind := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
		events := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.event.deadletter"}})
		m := join(t, b, JoinOptions{Patterns: []string{"job.*"}})
		publish(t, b, post{topic: "job.eu", payload: "bad", key: "k"}, post{topic: "job.eu", payload: ""})
		g, _ := take(m)
		m.Nack(Nack{Action: NackReject, Reason: "no such customer"}, SequenceRange{g.first, g.first})
		rest, _ := takeEverything(m)
		m.Nack(Nack{Action: NackReject}, SequenceRange{2, 2})
		if len(g.payloads)+len(rest) != 2 {
			t.Fatalf("took %v and %v", g.payloads, rest)
		}
		wantPayloads(t, takeAll(dlq), []string{
			"tinybroker-attempts=1;tinybroker-group=g;tinybroker-reason=rejected: no such customer;tinybroker-topic=job.eu;|bad",
			"tinybroker-attempts=1;tinybroker-group=g;tinybroker-reason=rejected;tinybroker-topic=job.eu;|",
		})
		wantPayloads(t, takeAll(blind), []string{"bad", ""})
		if told := takeAll(events); len(told) != 2 || !strings.Contains(told[0], `"reason":"rejected: no such customer"`) {
			t.Errorf("events: %q", told)
		}
		if st := b.Stats(); st.DeadLetters != 2 || st.Published != 2 {
			t.Errorf("%d dead letters, %d published; want 2 and 2", st.DeadLetters, st.Published)
		}
		wantBooks(t, b, 0, 0, 0)
	})
}

func TestADeadLetterThatDiesDoesNotLoop(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{})
	mourner := join(t, b, JoinOptions{Group: "mourners", Patterns: []string{"$tb.dlq.**"}})
	publish(t, b, post{topic: "t", payload: "x"})
	g, _ := take(m)
	m.Nack(Nack{Action: NackReject}, g.all())
	g, ok := take(mourner)
	if !ok {
		t.Fatal("a group got no dead letter")
	}
	mourner.Nack(Nack{Action: NackReject}, g.all())
	if _, again := take(mourner); again {
		t.Error("a dead letter's dead letter came")
	}
	if st := b.Stats(); st.DeadLetters != 2 {
		t.Errorf("%d dead letters counted, want 2", st.DeadLetters)
	}
}

func TestADeadLetterThatFindsNoRoomIsCounted(t *testing.T) {
	b := newBroker(t, nil)
	m := join(t, b, JoinOptions{})
	join(t, b, JoinOptions{Group: "mourners", Patterns: []string{"$tb.dlq.g"}, Settings: GroupSettings{Capacity: 1}})
	publish(t, b, numbered("t", 0, 3)...)
	g, _ := take(m)
	m.Nack(Nack{Action: NackReject}, g.all())
	if st := b.Stats(); st.DeadLetters != 3 || st.Dropped != 2 {
		t.Errorf("%d dead letters, %d dropped; want 3 and the 2 that found no room", st.DeadLetters, st.Dropped)
	}
	wantBooks(t, b, 0, 0, 0)
}

// A reader that takes dead letters as they come is not evicted by many at once; one that takes nothing costs whoever rejects a moment, once.
func TestABurstOfDeadLetters(t *testing.T) {
	const n = 1000
	var odd []SequenceRange // and even, so that they come in many pieces
	for i := range uint64(n) {
		odd = append(odd, SequenceRange{(i*2)%n + 1 + i*2/n, (i*2)%n + 1 + i*2/n})
	}
	for name, ranges := range map[string][]SequenceRange{"in one range": {{1, n}}, "in many": odd} {
		for _, drains := range []bool{false, true} {
			t.Run(fmt.Sprint(name, drains), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBroker(t, nil)
					letters := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.dlq.*"}, Capacity: 100})
					events := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.event.deadletter"}, Capacity: 100})
					frozen := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.dlq.*"}, Capacity: 100})
					var read [2]int
					var wg sync.WaitGroup
					for i, s := range []*Subscription{letters, events} {
						wg.Go(func() {
							for {
								read[i] += len(takeAll(s))
								time.Sleep(time.Millisecond) // while whoever rejects goes on
								select {
								case <-s.Wake():
								case <-s.Done():
									return
								}
							}
						})
					}
					m := join(t, b, JoinOptions{MaxInFlight: n})
					publish(t, b, numbered("t", 0, n)...)
					takeEverything(m)
					if drains {
						b.Drain(time.Time{})
					}
					begun := time.Now()
					m.Nack(Nack{Action: NackReject}, ranges...)
					if took := time.Since(begun); took > 2*frameGrace {
						t.Errorf("it took %v", took)
					}
					time.Sleep(10 * time.Millisecond)
					wantEnded(t, frozen, EndEvicted, 101)
					if !drains {
						letters.Close()
						events.Close()
					}
					wg.Wait()
					if read != [2]int{n, n} {
						t.Errorf("%d letters and %d events were read: %v, %v", read[0], read[1], letters.Ending(), events.Ending())
					}
				})
			})
		}
	}
}

// A message that kills whoever takes it ends as a dead letter, and no other message does.
func TestPoisonTakesNoOthersAlong(t *testing.T) {
	b := newBroker(t, nil)
	dlq := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.dlq.g"}})
	posts := numbered("t", 0, 200)
	posts[20].payload = "poison"
	acked := map[string]int{}
	work := func(m *Member) (died bool) {
		for {
			g, ok := take(m)
			if !ok {
				return false
			}
			if slices.Contains(g.payloads, "poison") {
				m.Close()
				return true
			}
			for _, p := range g.payloads {
				acked[p]++
			}
			m.Ack(g.all())
		}
	}
	m := join(t, b, JoinOptions{})
	publish(t, b, posts...)
	deaths := 0
	for work(m) {
		deaths++
		m = join(t, b, JoinOptions{})
	}
	if deaths != 5 {
		t.Errorf("poison killed %d members, want max_attempts, 5", deaths)
	}
	letters := takeAll(dlq)
	if len(letters) != 1 || !strings.HasSuffix(letters[0], "|poison") || !strings.Contains(letters[0], "attempts=5") {
		t.Errorf("dead letters: %q", letters)
	}
	for _, p := range posts {
		if p.payload != "poison" && acked[p.payload] == 0 {
			t.Errorf("message %s was never acknowledged", p.payload)
		}
	}
	wantBooks(t, b, 199, 0, 0)
}

// A message that dies in many groups at once becomes many. They take what there is, and a little more; frozen subscriptions go for them, and what finds no
// room is counted.
func TestDeadLettersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const groups, n, size, limit = 50, 20, 100_000, 4 << 20
		b := newBroker(t, func(o *Options) { o.MaxMemory = limit })
		frozen := subscribe(t, b, SubscribeOptions{Patterns: []string{"frozen"}})
		events := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.event.**"}})
		var members, undertakers []*Member
		for i := range groups {
			g := fmt.Sprint("g", i)
			members = append(members, join(t, b, JoinOptions{Group: g, Patterns: []string{"t"}}))
			undertakers = append(undertakers, join(t, b, JoinOptions{Group: "of-" + g, Patterns: []string{DeadLetterTopic(g)}}))
		}
		for range n {
			publish(t, b, post{topic: "t", payload: strings.Repeat("x", size)})
			publish(t, b, post{topic: "frozen", payload: strings.Repeat("x", size/2)})
		}
		time.Sleep(time.Second)
		for _, m := range members {
			for g, ok := take(m); ok; g, ok = take(m) {
				m.Nack(Nack{Action: NackReject}, g.all())
				if used := b.Stats().Memory; used > limit+ownRoom {
					t.Fatalf("%d bytes are held of %d", used, limit)
				}
			}
		}
		if r := frozen.Ending().Reason; r != EndEvicted {
			t.Errorf("a frozen subscription has %s, while dead letters found no room", r)
		}
		handled := 0
		for _, m := range undertakers {
			all, _ := takeEverything(m)
			handled += len(all)
			m.Ack(SequenceRange{1, n})
		}
		takeAll(events)
		dropped := countOf(t, b.Tally().Dropped, DropMemory.String())
		if st := b.Stats(); st.DeadLetters != groups*n || handled < (limit+ownRoom)*8/10/size || uint64(handled)+dropped != groups*n {
			t.Errorf("of %d dead letters %d were handled, %d dropped", st.DeadLetters, handled, dropped)
		}
		checkBooks(t, b)
		wantMemory(t, b, 0)
	})
}
