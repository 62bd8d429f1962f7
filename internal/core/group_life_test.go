package core

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

func TestGroupLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		events := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.event.group.*"}})
		if r := publish(t, b, post{topic: "t", payload: "before"})[0]; r.Receivers != 0 {
			t.Error("a message was queued for a group that does not exist yet")
		}
		m := join(t, b, JoinOptions{Settings: GroupSettings{Capacity: 20}})
		publish(t, b, numbered("t", 0, 10)...)
		take(m)
		m.Close()
		time.Sleep(59 * time.Second)
		publish(t, b, numbered("t", 10, 5)...)
		m = join(t, b, JoinOptions{})
		time.Sleep(time.Hour)
		all, _ := takeEverything(m)
		wantPayloads(t, all, payloads(numbered("t", 0, 15)))
		m.Close()
		r := publish(t, b, numbered("t", 15, 10)...)[0]
		if r.Accepted != 5 || !errors.Is(r.Err, ErrGroupFull) {
			t.Errorf("without members: %+v, want the backlog bounded", r)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(b.Groups()); n != 0 {
			t.Fatalf("%d groups after the linger", n)
		}
		if st := b.Stats(); st.Dropped != 20 {
			t.Errorf("%d dropped, want the 20 that were queued", st.Dropped)
		}
		wantPayloads(t, takeAll(events), []string{`{"group":"g"}`, `{"group":"g","dropped":20}`})
		wantMemory(t, b, 0)
		if r := publish(t, b, post{topic: "t", payload: "after"})[0]; r.Receivers != 0 {
			t.Error("a group that is gone takes messages")
		}
	})
}

// What goes with members that did not come back is told while the group goes on with others, and when it goes.
func TestWhatExpiresIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		var told []Expired
		b.OnExpired(func(e Expired) { told = append(told, e) })
		events := subscribe(t, b, SubscribeOptions{Patterns: []string{"$tb.event.group.*"}})
		old := join(t, b, JoinOptions{Patterns: []string{"jobs.old"}})
		current := join(t, b, JoinOptions{Patterns: []string{"jobs.new"}})
		publish(t, b, post{topic: "jobs.old", payload: "0"})
		take(old)
		old.Nack(Nack{}, SequenceRange{1, 1}) // waits for another attempt
		old.Close()
		for i := range 6 {
			publish(t, b, post{topic: "jobs.old", payload: "1", key: fmt.Sprint(i / 2)})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		publish(t, b, numbered("jobs.new", 0, 2)...)
		current.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		wantPayloads(t, takeAll(events), []string{
			`{"group":"g"}`, `{"group":"g","patterns":["jobs.old"],"dropped":7}`, `{"group":"g","dropped":9}`,
		})
		if want := []Expired{{"g", []string{"jobs.old"}, 7}, {"g", nil, 2}}; !reflect.DeepEqual(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

func TestLastLeavesAsTheNextJoins(t *testing.T) {
	b := newBroker(t, func(o *Options) { o.GroupLinger = 0 })
	for round := range 500 {
		m := join(t, b, JoinOptions{})
		left := make(chan struct{})
		go func() { m.Close(); close(left) }()
		next := join(t, b, JoinOptions{})
		r := publish(t, b, post{topic: "t", payload: fmt.Sprint(round)})[0]
		<-left
		if r.Receivers != 1 {
			t.Fatalf("round %d: %d receivers", round, r.Receivers)
		}
		g, ok := take(next)
		if !ok || g.payloads[len(g.payloads)-1] != fmt.Sprint(round) {
			t.Fatalf("round %d: the newcomer got %+v", round, g)
		}
		next.Ack(g.all())
		next.Close()
	}
}

// A lane that loses its last member does not keep what others can do, nor what comes later.
func TestALaneWithoutMembersHandsItsMessagesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		eu := join(t, b, JoinOptions{Patterns: []string{"job.eu", "only.eu"}, MaxInFlight: 1})
		publish(t, b, post{topic: "job.eu", payload: "1"}, post{topic: "only.eu", payload: "2"}, post{topic: "job.eu", payload: "3"},
			post{topic: "job.eu", payload: "4", key: "k"}, post{topic: "job.eu", payload: "5", key: "k"})
		take(eu)
		all := join(t, b, JoinOptions{Patterns: []string{"job.*"}})
		eu.Close()
		publish(t, b, post{topic: "job.eu", payload: "6", key: "k"}, post{topic: "only.eu", payload: "7"})
		got, _ := takeEverything(all)
		wantPayloads(t, got, []string{"1", "3", "4", "5", "6"})
		all.Ack(SequenceRange{1, 100})
		wantBooks(t, b, 5, 2, 0)
		time.Sleep(b.Options().GroupLinger)
		synctest.Wait()
		wantBooks(t, b, 5, 0, 0)
		if st := groupStats(t, b, "g"); st.Dropped != 2 {
			t.Errorf("%d dropped with the lane, want 2", st.Dropped)
		}
		if r := publish(t, b, post{topic: "only.eu", payload: "8"})[0]; r.Receivers != 0 {
			t.Error("a lane that is gone takes messages")
		}
		wantMemory(t, b, 0)
	})
}

// A delivery under way when a member ends may be written all the same: then its last number is that of the last message written.
func TestTheEndOfAMemberKnowsWhatIsWritten(t *testing.T) {
	for _, written := range []bool{true, false} {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{})
		publish(t, b, numbered("t", 0, 5)...)
		var d Delivery
		m.Take(&d, 1)
		m.Settle(&d, true)
		m.Take(&d, 1<<20)
		m.Close()
		m.Settle(&d, written)
		want := uint64(1)
		if written {
			want = 5
		}
		if got := m.Ending().LastSequence; got != want {
			t.Errorf("written: %v, the last delivery was %d, want %d", written, got, want)
		}
	}
}

func TestTakeoverInAGroup(t *testing.T) {
	b := newBroker(t, nil)
	first := join(t, b, JoinOptions{ID: "w"})
	publish(t, b, numbered("t", 0, 3)...)
	take(first)
	second := join(t, b, JoinOptions{ID: "w"})
	if r := first.Ending().Reason; r != EndReplaced {
		t.Errorf("the first ended as %s", r)
	}
	g, _ := take(second)
	wantPayloads(t, g.payloads, []string{"0", "1", "2"})
	first.Ack(SequenceRange{1, 3})
	wantBooks(t, b, 0, 0, 3)
}

// Lanes that lose their members at different times wait for each other's linger without keeping the broker busy.
func TestLanesLingerOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		eu, us := join(t, b, JoinOptions{Patterns: []string{"eu"}}), join(t, b, JoinOptions{Patterns: []string{"us"}})
		publish(t, b, post{topic: "eu", payload: "1"}, post{topic: "us", payload: "2"})
		eu.Close()
		time.Sleep(b.options.GroupLinger / 2)
		us.Close()
		time.Sleep(b.options.GroupLinger - 1)
		wantBooks(t, b, 0, 2, 0)
		us = join(t, b, JoinOptions{Patterns: []string{"us"}})
		synctest.Wait()
		wantBooks(t, b, 0, 1, 0) // what waited for eu has waited for longer than the linger
		us.Close()
		time.Sleep(b.options.GroupLinger)
		synctest.Wait()
		wantMemory(t, b, 0)
	})
}

// A publish that has found a lane which then expires counts its messages as unrouted instead of leaving them there.
func TestALaneThatHasGoneTakesNothing(t *testing.T) {
	b := newBroker(t, nil)
	join(t, b, JoinOptions{Patterns: []string{"us"}})
	eu := join(t, b, JoinOptions{Patterns: []string{"eu"}})
	publish(t, b, post{topic: "eu", payload: "1"}) // the route is remembered
	eu.Close()
	g := b.groups["g"]
	g.mu.Lock()
	g.removeLaneLocked(eu.lane) // the router has not heard of it yet
	g.mu.Unlock()
	if r := publish(t, b, post{topic: "eu", payload: "2"})[0]; r.Receivers != 0 || r.Unrouted != 1 {
		t.Errorf("a publish to a lane that has gone: %+v", r)
	}
	wantBooks(t, b, 0, 0, 0)
	if n := g.waiting(); n != 0 {
		t.Errorf("room for %d messages is taken", n)
	}
	wantMemory(t, b, 0)
}
