package core

import (
	"slices"
	"time"
)

// modelHold is a delivery that the transport has yet to write.
type modelHold struct {
	*Hold
	group *modelGroup
	m     *modelMember
	last  uint64
}

// written settles the delivery under way.
func (g *modelGroup) written(m *modelMember, ok bool) {
	d := m.delivery
	m.delivery = nil
	flights := g.flights(m, d.FirstSequence, d.FirstSequence+uint64(d.Count)-1)
	g.note("%s: %p has written %d from %d on: %v", g.name, m.real, d.Count, d.FirstSequence, ok)
	last := d.FirstSequence + uint64(d.Count) - 1
	if ok && g.rng.IntN(4) < g.slow {
		hold := modelHold{new(Hold), g, m, last}
		d.Hold(hold.Hold)
		g.holds = append(g.holds, hold)
	} else if g.hasDeadline() {
		m.writtenTo = last
	}
	m.real.Settle(d, ok)
	for _, x := range flights {
		switch {
		case !ok:
			g.giveBack(x, false, time.Time{})
		case g.settings.Ack == AckNone:
			g.acked++
			delete(g.messages, x.id)
		case x.deadline.IsZero() && *g.settings.AckDeadline > 0:
			x.deadline = time.Now().Add(*g.settings.AckDeadline)
		}
	}
	g.freed(m)
}

func (g *modelGroup) hasDeadline() bool {
	return g.settings.Ack == AckExplicit && *g.settings.AckDeadline > 0
}

// writeOut lets the transport of some member write the next of what it holds.
func (w *groupWorld) writeOut() {
	m := w.holds[w.rng.IntN(len(w.holds))].m
	i := slices.IndexFunc(w.holds, func(h modelHold) bool { return h.m == m })
	h := w.holds[i]
	w.holds = slices.Delete(w.holds, i, i+1)
	w.note("%s: %p has sent all up to %d", h.group.name, m.real, h.last)
	h.Release()
	if !h.group.hasDeadline() {
		return
	}
	m.progress = w.b.started.Add(max(1, time.Since(w.b.started)))
	if h.last <= m.writtenTo || !slices.Contains(h.group.members, m) {
		return
	}
	for _, x := range h.group.flights(m, m.writtenTo+1, h.last) {
		x.written = m.progress
	}
	m.writtenTo = h.last
}

// stalls returns when the member goes if nothing more is written until then.
func (m *modelMember) stalls() time.Time {
	since := m.since
	if m.progress.After(since) {
		since = m.progress
	}
	return since.Add(m.real.broker.options.SendTimeout)
}

// laterDeadline is when the deadline of a message passes that has been written only lately, or not yet; zero: it has passed.
func (g *modelGroup) laterDeadline(x *modelMessage) time.Time {
	from := x.written
	if x.sequence > x.holder.writtenTo {
		from = x.holder.progress
	}
	if !g.hasDeadline() || from.IsZero() {
		return time.Time{}
	}
	return from.Add(*g.settings.AckDeadline)
}
