//go:build unix

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// soakLetters is a subscription to the dead letters.
type soakLetters struct {
	s      *soak
	client *rpc.Client

	mu  sync.Mutex
	got map[string]map[soakMark]int // by group
	// dead is what the broker has counted by group until this round began.
	dead map[string]uint64
}

func (*soakLetters) id() string { return "letters" }

func (l *soakLetters) run(ctx context.Context) {
	o := rpc.SubscribeOptions{ID: l.id(), Patterns: []string{"$tb.dlq.**"}, OnGap: func(g rpc.Gap) {
		if !g.Restarted {
			l.s.fault("letters: a gap: %+v", g)
		}
	}}
	err := l.client.Subscribe(ctx, o, func(d *rpc.Delivery) error {
		sender, n, err := readSoakText(d.Headers[core.HeaderTopic], d.Key, string(d.Payload))
		if err != nil {
			l.s.fault("dead letter: %v", err)
			return nil
		}
		group := strings.Clone(d.Headers[core.HeaderGroup])
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.got[group] == nil {
			l.got[group] = map[soakMark]int{}
		}
		l.got[group][soakMark{sender, n}]++
		return nil
	})
	if ctx.Err() == nil {
		l.s.fault("letters: %v", err)
	}
}

// judge wants a dead letter of every poisonous message that the group took, and of no other.
func (l *soakLetters) judge(g *soakGroup, fates map[string]*soakFate, stops []soakStop) (faults []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.got[g.name]
	for mark := range got {
		if f := fates[mark.sender]; f == nil || !g.rejects || !f.poison[mark.n] {
			faults = append(faults, fmt.Sprintf("group %s: %s %d became a dead letter", g.name, mark.sender, mark.n))
		}
	}
	if !g.rejects {
		return faults
	}
	for name, f := range fates {
		for n := range f.poison {
			if n > f.confirmed || f.refused[n] || !g.takes(f.topic(n)) || excusedBy(stops, g.name, f.begunAt[n], f.confirmedAt[n]) {
				continue
			}
			if got[soakMark{name, n}] == 0 && len(stops) == 0 {
				faults = append(faults, fmt.Sprintf("group %s: %s %d was rejected and is no dead letter", g.name, name, n))
			}
		}
	}
	return faults
}

// count compares with what the broker counts.
func (l *soakLetters) count(groups []core.GroupStats, restarted bool) (faults []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dead := map[string]uint64{}
	for _, g := range groups {
		dead[g.Name] = g.DeadLetters
		n := uint64(0)
		for _, times := range l.got[g.Name] {
			n += uint64(times)
		}
		if want := g.DeadLetters - l.dead[g.Name]; !restarted && n != want {
			faults = append(faults, fmt.Sprintf("group %s: %d dead letters came, the broker counts %d", g.Name, n, want))
		}
	}
	l.dead = dead
	return faults
}

func (l *soakLetters) closeRound(sums *soakSums) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, got := range l.got {
		sums.letters += len(got)
	}
	l.got = map[string]map[soakMark]int{}
}
