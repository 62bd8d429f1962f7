package core

import (
	"sync"
	"testing"
	"time"
)

// TestProbe: it returns while all is well, and not while any one lock is held.
func TestProbe(t *testing.T) {
	b := newBroker(t, nil)
	s, err := b.Subscribe(SubscribeOptions{Patterns: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m, err := b.Join(JoinOptions{Group: "g", Patterns: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b.Probe()
	for name, l := range map[string]sync.Locker{
		"sampleMu":     &b.sampleMu,
		"gate":         &b.gate,
		"mu":           &b.mu,
		"shard":        &b.router.shards[routeShards-1].mu,
		"router":       &b.router.mu,
		"subscription": &s.mu,
		"group":        &b.groups["g"].mu,
	} {
		l.Lock()
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			b.Probe()
		}()
		select {
		case <-returned:
			t.Errorf("it returns though %s is held", name)
		case <-time.After(20 * time.Millisecond):
		}
		l.Unlock()
		<-returned
	}
}
