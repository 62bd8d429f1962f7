package core

import (
	"container/heap"
	"time"
)

// A group has one timer for everything that becomes due in it: ack deadlines, attempts after a delay, members whose stream
// takes nothing, lanes and the group itself without members.

// armLocked makes sure that tick runs at the given time, or before.
func (g *group) armLocked(at time.Time) {
	if g.ended || !g.armed.IsZero() && !at.Before(g.armed) {
		return
	}
	if g.stop != nil {
		g.stop()
	}
	g.armed = at
	g.stop = g.broker.clock.AfterFunc(max(0, at.Sub(g.broker.clock.Now())), g.tick)
}

// tick does what is due.
func (g *group) tick() {
	b := g.broker
	g.mu.Lock()
	expires := g.hasExpired(b.clock.Now())
	if expires {
		// The broker's mu is needed to take the group off the books, and comes before the group's.
		g.mu.Unlock()
		b.mu.Lock()
		g.mu.Lock()
	}
	var stalled []*Member
	var gone []*lane
	if !g.ended {
		now := b.clock.Now()
		g.armed = time.Time{}
		g.expireDeliveriesLocked(now)
		g.releaseDelayedLocked(now)
		stalled = g.endStalledLocked(now)
		gone = g.expireLanesLocked(now)
		g.evenOutLocked()
		if expires && g.hasExpired(now) { // nobody has joined meanwhile
			gone = append(gone, g.expireLocked()...)
			b.gone.add(&g.counters)
			delete(b.groups, g.name)
		}
		g.rearmLocked()
	}
	ended := g.ended
	if expires {
		b.mu.Unlock()
	}
	g.unlock()
	for _, m := range stalled {
		b.forget(m)
	}
	for _, l := range gone {
		b.router.remove(l.patterns, l)
	}
	g.tellExpired(gone, ended)
}

// hasExpired reports whether the group has had no member for the linger.
func (g *group) hasExpired(now time.Time) bool { return !g.linger.IsZero() && !g.linger.After(now) }

// rearmLocked arms the timer for whatever comes next.
func (g *group) rearmLocked() {
	if p := g.deadline.front(); p != nil {
		g.armLocked(p.deadline)
	}
	if p := g.delayed.front(); p != nil {
		g.armLocked(p.due)
	}
	for _, l := range g.lanes {
		if !l.linger.IsZero() && g.members > 0 { // else they go with the group
			g.armLocked(l.linger)
		}
		for _, m := range l.members {
			if m.writing > 0 {
				g.armLocked(m.lastProgress().Add(g.broker.options.SendTimeout))
			}
		}
	}
	if !g.linger.IsZero() {
		g.armLocked(g.linger)
	}
}

// startDeadlinesLocked lets the deadline of what was just given to the stream run. Some of it may be acknowledged already. What is written
// later has more time, which is seen to when the deadline passes, see dueLocked: most is acknowledged long before.
func (m *Member) startDeadlinesLocked(first, last uint64, d time.Duration) {
	if d <= 0 {
		return
	}
	for i := len(m.flights) - 1; i >= 0 && m.flights[i].first >= first; i-- {
		if p := m.flights[i]; p.first <= last && p.deadline.IsZero() {
			m.group.setDeadlineLocked(p, d)
		}
	}
}

// setDeadlineLocked sets or replaces a deadline; 0: none.
func (g *group) setDeadlineLocked(p *parcel, d time.Duration) {
	g.stopDeadlineLocked(p)
	if d <= 0 {
		return
	}
	p.deadline = g.broker.clock.Now().Add(d)
	heap.Push(&g.deadline, p)
	g.armLocked(p.deadline)
}

func (g *group) stopDeadlineLocked(p *parcel) {
	if !p.deadline.IsZero() {
		heap.Remove(&g.deadline, p.spot)
		p.deadline = time.Time{}
	}
}

// expireDeliveriesLocked gives back what was not acknowledged in time.
func (g *group) expireDeliveriesLocked(now time.Time) {
	for p := g.deadline.front(); p != nil && !p.deadline.After(now); p = g.deadline.front() {
		m := p.member
		if left := m.dueLocked(p).Sub(now); left > 0 {
			g.setDeadlineLocked(p, left)
			continue
		}
		m.setLate(true)
		m.eachLocked(p.first, p.last(), func(p *parcel) {
			g.counters.expired += uint64(p.n)
			g.giveBackLocked(p, giveBack{charge: true, reason: "ack deadline exceeded"})
		})
		m.freedLocked()
		m.lane.rouse() // for the late ones, now that this one is no longer prompt
	}
}

func (g *group) releaseDelayedLocked(now time.Time) {
	for p := g.delayed.front(); p != nil && !p.due.After(now); p = g.delayed.front() {
		heap.Pop(&g.delayed)
		p.due = time.Time{}
		if p.behind {
			p.key.offer()
		} else {
			p.lane.giveBack(p)
		}
	}
}

func (g *group) endStalledLocked(now time.Time) (stalled []*Member) {
	timeout := g.broker.options.SendTimeout
	for _, l := range g.lanes {
		for _, m := range l.members {
			if m.writing > 0 && !m.lastProgress().Add(timeout).After(now) {
				stalled = append(stalled, m)
			}
		}
	}
	for _, m := range stalled {
		m.endLocked(EndStalled)
	}
	return stalled
}
