package core

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestAHungMemberTrapsNoLane: what waits for members with the same patterns as one that hangs is for others that match it, and so is what
// that one lets pass. Their order by key holds.
func TestAHungMemberTrapsNoLane(t *testing.T) {
	for name, key := range map[string]string{"without a key": "", "with a key": "k"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(t, nil)
				hung := join(t, b, JoinOptions{Patterns: []string{"t.*"}, MaxInFlight: 2})
				var posts []post
				for i := range 10 {
					posts = append(posts, post{"t.a", fmt.Sprint(i), key})
				}
				publish(t, b, posts[0])
				first, _ := take(hung)
				wantPayloads(t, first.payloads, []string{"0"})
				good := join(t, b, JoinOptions{Patterns: []string{"t.*", "u"}, MaxInFlight: 2})
				take(hung)
				take(good) // nothing for them: they wait
				publish(t, b, posts[1:]...)
				var done []string
				for range 300 {
					done = append(done, serve(t, map[*Member]bool{good: true}, good, hung)[good]...)
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if key != "" {
					wantPayloads(t, done, payloads(posts))
				}
				if st := groupStats(t, b, "g"); st.Acked != 10 || st.DeadLetters > 0 {
					t.Errorf("10 messages, one member hangs and one works, which did %q: %+v", done, st)
				}

				// Nor does the one that is late get anything while the other has its fill.
				publish(t, b, numbered("t.b", 0, 10)...)
				serve(t, nil, good, hung)
				if st := groupStats(t, b, "g"); st.InFlight != 2 || hung.lane.ready > 0 {
					t.Errorf("%d in flight, want 2; %d wait for the one that hangs", st.InFlight, hung.lane.ready)
				}
				// Where only it may have them, it does.
				good.Close()
				if n := len(serve(t, nil, hung)[hung]); n != 2 {
					t.Errorf("alone, it got %d, want 2", n)
				}
			})
		})
	}
}

// TestOthersTakeOverFromAFullLane: whoever comes to have free credit is given what waits for members that have their fill, the oldest first, but
// nothing that its own patterns do not match.
func TestOthersTakeOverFromAFullLane(t *testing.T) {
	b := newBroker(t, nil)
	slow := join(t, b, JoinOptions{Patterns: []string{"t.*"}, MaxInFlight: 1})
	publish(t, b, post{topic: "t.a", payload: "a0"}, post{topic: "t.b", payload: "b1"}, post{topic: "t.a", payload: "a2"}, post{topic: "t.a", payload: "a3"},
		post{topic: "t.b", payload: "b4"}, post{topic: "t.a", payload: "a5"}, post{topic: "t.a", payload: "a6"})
	held, _ := take(slow)
	wantPayloads(t, held.payloads, []string{"a0"})
	quick := join(t, b, JoinOptions{Patterns: []string{"t.a"}, MaxInFlight: 2}) // a lane that comes later
	got, last := takeEverything(quick)
	wantPayloads(t, got, []string{"a2", "a3"})
	quick.Ack(last.all())
	more, last := takeEverything(quick)
	wantPayloads(t, more, []string{"a5", "a6"})
	quick.Ack(last.all())

	// What a member that crashes had is for those who are free, not for the full ones of its own lane.
	other := join(t, b, JoinOptions{Patterns: []string{"t.*"}, MaxInFlight: 1})
	got, _ = takeEverything(other)
	wantPayloads(t, got, []string{"b1"})
	slow.Close()
	more, _ = takeEverything(quick)
	wantPayloads(t, more, []string{"a0"})
	wantBooks(t, b, 4, 1, 2)
}

// TestAMemberWithPatternsOfItsOwnJoinsAtOnce: what a join costs, all joins of others waiting meanwhile, does not grow with the square of the
// members that have come and gone, whose lanes linger.
func TestAMemberWithPatternsOfItsOwnJoinsAtOnce(t *testing.T) {
	b := newBroker(t, nil)
	join(t, b, JoinOptions{Patterns: []string{"keep"}, MaxInFlight: 1})
	publish(t, b, post{"keep", "1", "k"}, post{"keep", "2", "k"}, post{"keep", "3", ""})
	lanes := 0
	comeAndGo := func(until int) (quickest time.Duration) {
		quickest = time.Hour
		for ; lanes < until; lanes++ {
			start := time.Now()
			m, err := b.Join(JoinOptions{Group: "g", Patterns: []string{fmt.Sprint("reply.", lanes)}})
			if err != nil {
				t.Fatal(err)
			}
			quickest = min(quickest, time.Since(start))
			m.Close()
		}
		return quickest
	}
	comeAndGo(40)
	few := comeAndGo(50)
	comeAndGo(990)
	if many := comeAndGo(1000); many > 50*few { // the square of 20 is 400
		t.Errorf("a join takes %v among 1000 lanes without members, %v among 50", many, few)
	}
}

// TestAKeyMovesWhole: who takes over the first message of a key is given those behind it while it holds that one, also what comes later.
func TestAKeyMovesWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		hung := join(t, b, JoinOptions{Patterns: []string{"t.*"}, MaxInFlight: 2})
		for i := range 5 {
			publish(t, b, post{"t.a", fmt.Sprint(i), "k"})
		}
		takeEverything(hung)
		good := join(t, b, JoinOptions{Patterns: []string{"t.*", "u"}})
		if got, _ := takeEverything(good); len(got) > 0 {
			t.Fatalf("%q are at one member, while another holds the key", got)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		publish(t, b, post{"t.a", "5", "k"})
		got, _ := takeEverything(good)
		wantPayloads(t, got, []string{"0", "1", "2", "3", "4", "5"})
	})
}

// What the last member of a lane leaves behind is looked through for others' messages in a time that does not grow with the messages times the lanes.
func TestHandingOverToManyLanes(t *testing.T) {
	took := func(lanes int) time.Duration {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{Patterns: []string{"t.a"}})
		for i := range lanes {
			join(t, b, JoinOptions{Patterns: []string{fmt.Sprintf("{t,x%d}.[b-z]", i)}})
		}
		for range 10 {
			publish(t, b, numbered("t.a", 0, 500)...)
		}
		at := time.Now()
		m.Close()
		return time.Since(at)
	}
	quickest := func(lanes int) time.Duration { return min(took(lanes), took(lanes), took(lanes)) }
	if few, many := quickest(4), quickest(800); many > 40*few {
		t.Errorf("with 800 lanes it takes %v, with 4 %v", many, few)
	}
}
