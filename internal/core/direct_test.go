package core

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// woken reports whether the owner of s is to look at its queue.
func woken(s *Subscription) bool {
	select {
	case <-s.Wake():
		return true
	default:
		return false
	}
}

func TestAPublisherServesWhoeverLetsIt(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	plain := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	var got []string
	willing := true
	s.Direct(func() bool {
		b.Stats() // takes locks, so it would hang if the publisher held one
		if willing {
			got = append(got, takeAll(s)...)
		}
		return willing
	})

	publish(t, b, numbered("t", 0, 3)...)
	wantPayloads(t, got, payloads(numbered("t", 0, 3)))
	if woken(s) {
		t.Error("the owner was woken though the publisher has served it")
	}
	if !woken(plain) {
		t.Error("a subscription without Direct was not woken")
	}

	willing = false
	publish(t, b, numbered("t", 3, 1)...)
	if !woken(s) {
		t.Error("the owner was not woken though the publisher could not serve it")
	}
	willing = true
	publish(t, b, numbered("t", 4, 1)...)
	if len(got) != 3 || woken(s) {
		t.Error("a queue that was not empty was served: that is the business of whoever was told when it became so")
	}
}

func TestAPublisherServesSmallBatchesOnly(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	s.Direct(func() bool {
		t.Error("a large batch was served by its publisher")
		return true
	})
	publish(t, b, post{topic: "t", payload: strings.Repeat("x", lightBatch)})
	if !woken(s) {
		t.Error("the owner was not woken")
	}
}

func TestAPublisherServesSoManyOnly(t *testing.T) {
	b := newBroker(t, nil)
	served, roused := 0, 0
	var subs []*Subscription
	for range lightReceivers + 10 {
		s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
		s.Direct(func() bool {
			served += len(takeAll(s))
			return true
		})
		subs = append(subs, s)
	}
	publish(t, b, numbered("t", 0, 1)...)
	for _, s := range subs {
		if woken(s) {
			roused++
		}
	}
	if served != lightReceivers || roused != 10 {
		t.Errorf("%d were served and %d woken, want %d and 10", served, roused, lightReceivers)
	}
}

// TestAPublisherServesBeforeItWaits: what one subscription is to get must not wait for another one's room.
func TestAPublisherServesBeforeItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		full := subscribe(t, b, SubscribeOptions{Patterns: []string{"b"}, Capacity: 4})
		publish(t, b, numbered("b", 0, 3)...)
		quick := subscribe(t, b, SubscribeOptions{Patterns: []string{"a"}})
		begun := time.Now()
		var served time.Duration
		quick.Direct(func() bool {
			served = time.Since(begun)
			return len(takeAll(quick)) > 0
		})
		batch := batchOf(append(numbered("a", 0, 1), numbered("b", 3, 1)...)...)
		batch.MaxWait = testPatience
		publishBatch(t, b, batch)
		if waited := time.Since(begun); waited != testPatience {
			t.Fatalf("the publisher waited %v: the test shows nothing", waited)
		}
		if served != 0 {
			t.Errorf("served after %v", served)
		}
		if n, _ := full.Queued(); n != 4 {
			t.Errorf("%d messages wait, want 4", n)
		}
	})
}
