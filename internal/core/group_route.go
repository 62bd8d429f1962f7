package core

import (
	"fmt"
	"slices"
)

// groupRoutes finds a group among the receivers of a topic.
type groupRoutes map[*group]*groupRoute

// groupRoute is a group as the receiver of one topic, through the lanes whose patterns match it.
type groupRoute struct {
	group *group
	lanes []*lane
}

// references is what the route takes beside its place among the receivers, in references to one: itself, and its lanes, of which a client can
// make many.
func (r *groupRoute) references() int { return 2 + len(r.lanes) }

// box implements receiver.
func (r *groupRoute) box() *intake { return &r.group.intake }

// refusal implements refuser.
func (r *groupRoute) refusal() error {
	return fmt.Errorf("%w: group %s holds %d messages", ErrGroupFull, quoteShort(r.group.name), r.group.waiting())
}

// commit implements receiver.
func (r *groupRoute) commit(p *publication, run *Run, start, end uint32, n int, reserved bool) fate {
	g := r.group
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.countRestlessLocked()
	// A lane may have gone since the route was looked up.
	r.lanes = slices.DeleteFunc(r.lanes, func(l *lane) bool { return l.gone })
	if g.ended || len(r.lanes) == 0 {
		if reserved {
			g.takenLocked(int64(n), int64(end-start))
		}
		return missed
	}
	g.counters.accepted += uint64(n)
	if !reserved {
		if start, end, n = g.makeRoomLocked(p.frame, start, end, n); n == 0 {
			return discarded
		}
	}
	g.noteLocked(p, n, int64(end-start))
	p.room -= int64(n) * parcelOverhead
	if g.waiting() > g.capacity/2 {
		p.crowded = true
	}
	if run.Keyed {
		g.addKeyedLocked(r.lanes, p, start, end)
	} else {
		g.addLocked(r.lanes, p, start, end, n)
	}
	return taken
}

// addLocked queues n messages without a key, each in one of the lanes.
func (g *group) addLocked(lanes []*lane, from *publication, start, end uint32, n int) {
	for n > 0 {
		l, k := g.chooseLocked(lanes, n)
		stop := end
		if k < n {
			_, size := measure(g.encoding, from.frame.data[start:end], k, int64(end-start))
			stop = start + uint32(size)
		}
		l.add(from, start, stop, k, len(lanes) > 1)
		l.seekHelp(fewLooks) // what came before may be for others
		start, n = stop, n-k
	}
}

// chooseLocked picks the lane for the next of n messages, and says how many it is good for: the one with the most free credit, and
// where none has any the one with the shortest queue. Lanes whose members are all late come after others, and those without members last.
func (g *group) chooseLocked(lanes []*lane, n int) (best *lane, k int) {
	if len(lanes) == 1 {
		return lanes[0], n
	}
	var free int
	for _, l := range lanes {
		credit := l.credit() - l.ready
		if best == nil || l.before(best, credit, free) {
			best, free = l, credit
		}
	}
	if free > 0 {
		return best, min(n, free)
	}
	return best, (n + len(lanes) - 1) / len(lanes)
}

// before reports whether a lane with that much free credit is a better place than another.
func (l *lane) before(other *lane, credit, otherCredit int) bool {
	if credit > 0 || otherCredit > 0 {
		return credit > otherCredit
	}
	if mine, others := l.standing(), other.standing(); mine != others {
		return mine > others
	}
	return l.ready < other.ready
}

// standing is 2 for a lane with members that go on with their work, 1 where all are late or leave, and 0 where there are none.
func (l *lane) standing() int {
	switch {
	case len(l.members) == 0:
		return 0
	case l.prompt > 0:
		return 2
	}
	return 1
}
