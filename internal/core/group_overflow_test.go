package core

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestGroupOverflow(t *testing.T) {
	for _, c := range []struct {
		policy  OverflowPolicy
		refused bool
		want    []string
	}{
		{OverflowReject, true, payloads(numbered("t", 0, 5))},
		{OverflowDropOldest, false, payloads(numbered("t", 3, 5))},
		{OverflowDropNewest, false, payloads(numbered("t", 0, 5))},
	} {
		t.Run(c.policy.String(), func(t *testing.T) {
			b := newBroker(t, nil)
			m := join(t, b, JoinOptions{Settings: GroupSettings{Capacity: 5, Overflow: c.policy}})
			publish(t, b, numbered("t", 0, 4)...)
			r := publish(t, b, numbered("t", 4, 4)...)[0]
			if refused := errors.Is(r.Err, ErrGroupFull); refused != c.refused {
				t.Errorf("the run came back as %+v", r)
			}
			if c.refused && r.Accepted != 1 {
				t.Errorf("%d accepted, want the one there was room for", r.Accepted)
			}
			all, _ := takeEverything(m)
			wantPayloads(t, all, c.want)
			m.Ack(SequenceRange{1, 100})
			st := groupStats(t, b, "g")
			if st.Accepted != st.Acked+st.Dropped {
				t.Errorf("books: %+v", st)
			}
			wantMemory(t, b, 0)
		})
	}
}

// When one of two groups refuses, neither the other nor anybody else has the message; the retry comes once to each.
func TestRejectIsAllOrNothing(t *testing.T) {
	b := newBroker(t, nil)
	narrow := join(t, b, JoinOptions{Group: "narrow", Settings: GroupSettings{Capacity: 2}})
	wide := join(t, b, JoinOptions{Group: "wide"})
	watcher := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	publish(t, b, numbered("t", 0, 2)...)
	r := publish(t, b, post{topic: "t", payload: "2"})[0]
	if !errors.Is(r.Err, ErrGroupFull) || r.Accepted != 0 || !strings.Contains(r.Err.Error(), "narrow") {
		t.Fatalf("a publish into a full group came back as %+v", r)
	}
	all, _ := takeEverything(wide)
	wantPayloads(t, all, []string{"0", "1"})
	wantPayloads(t, takeAll(watcher), []string{"0", "1"})
	take(narrow)
	if r := publish(t, b, post{topic: "t", payload: "2"})[0]; r.Err != nil || r.Receivers != 3 {
		t.Fatalf("the retry came back as %+v", r)
	}
	all, _ = takeEverything(wide)
	wantPayloads(t, all, []string{"2"})
	all, _ = takeEverything(narrow)
	wantPayloads(t, all, []string{"2"})
	wantPayloads(t, takeAll(watcher), []string{"2"})
}

func TestRejectHonoursMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		m := join(t, b, JoinOptions{Settings: GroupSettings{Capacity: 8}})
		fill := func() (Run, time.Duration) {
			begun := time.Now()
			batch := batchOf(numbered("t", 0, 10)...)
			batch.MaxWait = testPatience
			publishBatch(t, b, batch)
			return batch.Runs[0], time.Since(begun)
		}
		for range 2 {
			if r, took := fill(); !errors.Is(r.Err, ErrGroupFull) || took != testPatience {
				t.Fatalf("with nobody taking: %+v after %v, want a refusal after %v", r, took, testPatience)
			}
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			work(m, func(g got) {
				m.Ack(g.all())
				time.Sleep(time.Second)
			})
		}()
		if r, took := fill(); r.Err != nil || took >= testPatience {
			t.Fatalf("with a slow member: %+v after %v", r, took)
		}
		m.Close()
		<-stopped
	})
}
