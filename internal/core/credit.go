package core

import (
	"math"
	"slices"
)

// Who is given how much, and woken for it: a member by its credit, and among those of its lane by what each has in flight already.

// credit is how many more messages the member may be given, what happens in its lane aside.
func (m *Member) credit() int {
	if m.ended || m.leaving {
		return 0
	}
	if m.group.settings.Ack == AckNone {
		return math.MaxInt32
	}
	if m.onProbation() {
		return max(0, 1-m.inFlight)
	}
	return max(0, m.maxInFlight-m.inFlight)
}

// onProbation reports whether the member is late while others of its lane are not. It is given one message at a time, to show that it is at work
// again, and only such as have never been delivered: a worker that hangs would else get what it lets pass again and again, until it is a
// dead letter. Where all are late, there is nobody better.
func (m *Member) onProbation() bool { return m.late && m.lane.prompt > 0 }

// hasProof reports whether there is a message for a member on probation. The one attempt that it may cost must not be all that a message has.
func (l *lane) hasProof() bool { return l.fresh.len > 0 && l.group.settings.MaxAttempts > 1 }

// mayTake reports whether the member may be given anything right now.
func (m *Member) mayTake() bool { return m.isNext(m.lane.promptOnly()) }

// isNext is mayTake where it is known whether late members may be given anything.
func (m *Member) isNext(promptOnly bool) bool {
	return m.isFree() && !(m.late && promptOnly) && !(m.onProbation() && !m.lane.hasProof())
}

// isFree is mayTake whatever the others of the lane do.
func (m *Member) isFree() bool {
	return m.credit() > 0 && !m.alone && (m.lane.drainer != m || m.inFlight == 0 || m.lane.suspects.Len() == 0)
}

// setLate notes that the member has let a deadline pass, or has been heard of since.
func (m *Member) setLate(late bool) {
	if m.late == late || m.ended {
		return
	}
	m.late = late
	if !m.leaving {
		if late {
			m.lane.prompt--
		} else {
			m.lane.prompt++
		}
	}
	if late {
		m.lane.late++
		if m.lane.drainer == m {
			m.lane.undrain() // another may be free for the suspect sooner
		}
		return
	}
	m.lane.late--
	if d := m.lane.drainer; d != nil && d.late {
		m.lane.undrain() // it is on probation now, and not given suspects
	}
	for _, p := range m.flights {
		if p.key != nil {
			p.key.offer()
		}
	}
}

// credit is how many more messages the lane's members may be given, aside from late ones and those that are kept for a suspect.
func (l *lane) credit() int {
	n := 0
	for _, m := range l.members {
		if !m.late && m.isFree() {
			n += m.credit()
		}
	}
	return n
}

// promptOnly reports whether late members are given nothing, since one that is not late could be.
func (l *lane) promptOnly() bool {
	return l.late > 0 && slices.ContainsFunc(l.members, func(m *Member) bool { return !m.late && m.isFree() })
}

// share is how many more messages m may be given for what is ready to be shared out evenly: no more than bring it to what all who can take
// something now would have in flight. So a queue that is short does not go whole to the first who asks, and asks again, before the
// others have woken up. Who is being written to is not waited for.
func (l *lane) share(m *Member) int {
	if m.group.settings.Ack == AckNone && l.ready > shortQueue {
		return (l.ready + len(l.members) - 1) / len(l.members)
	}
	promptOnly := l.promptOnly()
	n, load := 0, l.ready
	for _, o := range l.members {
		if o != m && (o.writing > 0 || !o.isNext(promptOnly)) {
			continue
		}
		if m.waitsFor(o) {
			return 0
		}
		n++
		load += o.inFlight
	}
	return max(0, (load+n-1)/max(1, n)-m.inFlight)
}

// waitsFor reports whether m is to get nothing until o, which has been woken and was served longer ago, has taken something. Without acks
// nobody has anything in flight for long, so it is by turns that a short queue is shared out.
func (m *Member) waitsFor(o *Member) bool {
	return o != m && m.group.settings.Ack == AckNone && !o.parked && o.served < m.served
}

// shortQueue is how many messages are so few that members without acks take turns. With more, each takes its part as often as it comes.
const shortQueue = 64

func (m *Member) park() {
	if !m.parked {
		m.parked = true
		m.lane.parked++
	}
}

func (m *Member) unpark() {
	if m.parked {
		m.parked = false
		m.lane.parked--
		m.rouse()
	}
}

// wakeForMore wakes the member if there is something for it.
func (m *Member) wakeForMore() {
	if m.parked && m.mayTake() && (m.held.len > 0 || m.lane.ready > 0 && m.lane.share(m) > 0) {
		m.unpark()
	}
}

// rouse wakes members that wait for something to do, the least loaded first and of those the one that was served longest ago, and no
// more than there are messages.
func (l *lane) rouse() {
	n := min(l.ready, l.parked)
	if n == 0 {
		return
	}
	promptOnly := l.promptOnly()
	for ; n > 0; n-- {
		var idlest *Member
		for _, m := range l.members {
			if m.parked && m.isNext(promptOnly) && (idlest == nil || m.idlerThan(idlest)) {
				idlest = m
			}
		}
		if idlest == nil || l.share(idlest) == 0 {
			return
		}
		idlest.unpark()
	}
}

func (m *Member) idlerThan(other *Member) bool {
	if m.inFlight != other.inFlight {
		return m.inFlight < other.inFlight
	}
	return m.served < other.served
}
