package core

import (
	"slices"
	"time"
)

// A broker that drains lets everybody go for whom there can be nothing more: a broadcast subscription when its queue has been taken, and the members
// of a group together, when none of them has anything in flight and nothing waits that one of them may have. Until then any of them may be
// needed: what one gives back may be for others, whatever their patterns are, should it be the last of its lane.
//
// Whoever watches the broker's own topics goes last. A group that is not at rest may yet cause dead letters and events, and what takes those may
// be a group as well. So watchers stay until every group is at rest: none has anything for its members, nor publishes dead letters. One that has
// nothing causes nothing, so groups that take each other's letters do not wait for each other.

// Drain stops taking anything new, waits for the publishes under way, which waste no more patience, and lets every
// subscription end as shutting down once there can be nothing more for it. It does not wait for that. Whoever is left is cut off at the given
// time, so that nothing is waited for that becomes due only then; the zero time is never. Calling it again changes nothing.
func (b *Broker) Drain(until time.Time) {
	b.mu.Lock()
	begins := !b.isDraining()
	if begins {
		close(b.draining)
	}
	b.mu.Unlock()
	b.gate.Lock()
	b.gate.Unlock() //nolint:staticcheck,gocritic // nothing to do inside: having got the lock means that every publish has returned
	if !begins {
		return
	}
	for _, g := range b.allGroups() {
		g.beginDrain(until)
	}
	var watchers []consumer
	for _, c := range b.consumers() {
		if c.point().patterns.ownTopics() {
			watchers = append(watchers, c)
			continue
		}
		c.drain()
	}
	b.mu.Lock()
	b.watchers = watchers
	b.mu.Unlock()
	b.drainWatchers()
}

// drainWatchers lets watchers go once all groups are at rest. No lock may be held.
func (b *Broker) drainWatchers() {
	if b.restless.Load() > 0 {
		return
	}
	b.mu.Lock()
	watchers := b.watchers
	b.watchers = nil
	b.mu.Unlock()
	for _, c := range watchers {
		c.drain()
	}
}

// Close ends every subscription as shutting down, and every group, whatever is still queued, after Drain.
func (b *Broker) Close() {
	b.Drain(time.Time{})
	for _, c := range b.consumers() {
		c.end(EndShuttingDown)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, g := range b.groups {
		g.mu.Lock()
		g.expireLocked()
		b.gone.add(&g.counters)
		g.mu.Unlock()
		delete(b.groups, name)
	}
}

// Draining returns a channel that is closed when draining begins.
func (b *Broker) Draining() <-chan struct{} { return b.draining }

func (b *Broker) isDraining() bool {
	select {
	case <-b.draining:
		return true
	default:
		return false
	}
}

func (g *group) beginDrain(until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.draining, g.cutOff = true, until
	g.countRestlessLocked()
}

// countRestlessLocked keeps the broker's count of groups that are not at rest while it drains.
func (g *group) countRestlessLocked() {
	restless := g.draining && (g.posting > 0 || g.mayHaveMoreLocked())
	if restless == g.restless {
		return
	}
	if g.restless = restless; restless {
		g.broker.restless.Add(1)
	} else {
		g.broker.restless.Add(-1)
	}
}

// drain ends the member once there can be nothing more for it.
func (m *Member) drain() {
	m.group.mu.Lock()
	m.draining = true
	m.finishLocked()
	m.group.unlock()
}

// mayHaveMoreLocked reports whether there may yet be something for one of the members when nothing new comes: what one of them has in flight
// and may give back, what is ready, and what waits for another attempt that is due in time. What waits behind others of its key comes after one of
// these.
func (g *group) mayHaveMoreLocked() bool {
	hasMembers := func(l *lane) bool { return len(l.members) > 0 }
	return g.inFlight > 0 || slices.ContainsFunc(g.backlog, hasMembers) || slices.ContainsFunc(g.delayed.list, func(p *parcel) bool {
		return !p.behind && hasMembers(p.lane) && (g.cutOff.IsZero() || p.due.Before(g.cutOff))
	})
}

// finishDrainedLocked ends the members for whom there will be nothing more.
func (g *group) finishDrainedLocked() {
	if g.mayHaveMoreLocked() {
		return
	}
	for _, l := range g.lanes {
		for _, m := range slices.Clone(l.members) {
			m.finishLocked()
		}
	}
}
