package core

import (
	"sync/atomic"
	"time"
)

// Member is a subscription that belongs to a consumer group: it shares the group's queue with the others. One owner takes
// from it and says what became of what it took.
//
// Take and Settle are for one goroutine, one delivery at a time; everything else is safe for concurrent use.
type Member struct {
	endpoint

	group       *group
	lane        *lane
	maxInFlight int

	// Guarded by the group's mu.
	ended        bool
	ending       Ending
	leaving      bool
	draining     bool
	parked       bool      // its owner found nothing to take and waits to be woken
	alone        bool      // what it has in flight is a suspect
	late         bool      // it has let a deadline pass and said nothing since: others come first
	flights      []*parcel // in flight, by delivery number
	inFlight     int       // messages
	sequence     uint64    // last delivery number given out
	heard        uint64    // how often its owner has said what is to become of deliveries, or that it leaves
	served       uint64    // group.deliveries when it was last given something
	writing      uint64    // first delivery number of the delivery under way; 0: none is
	writingSince time.Time
	writtenTo    uint64          // last delivery number that is known to be written, where there is an ack deadline
	held         ring[*keyState] // keys it holds of which more is waiting
	outMeter     meter
	acked        uint64
	lastAck      time.Time

	progress atomic.Int64 // when the stream last took something, in nanoseconds since the broker's start; 0: it has not
}

// Group returns the group's name.
func (m *Member) Group() string { return m.group.name }

// Settings returns the group's settings; nothing in them is a default.
func (m *Member) Settings() GroupSettings { return m.group.settings }

// MaxInFlight returns how many deliveries may wait for this member's ack.
func (m *Member) MaxInFlight() int { return m.maxInFlight }

// Capacity returns the bounds of the group's queue, in messages and bytes.
func (m *Member) Capacity() (slots int, bytes int64) {
	return int(m.group.capacity), m.group.capacityBytes
}

// Ending tells why the membership ended; the zero value while it has not.
func (m *Member) Ending() Ending {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	return m.ending
}

// Close ends the membership as a crash would: what is in flight is given back at once. It does nothing when it has ended.
func (m *Member) Close() { m.end(EndClosed) }

// Leave asks for nothing more. What is in flight may still be acknowledged; the membership ends when all of it is, or with Left.
func (m *Member) Leave() {
	g := m.group
	g.mu.Lock()
	m.heard++
	if !m.leaving && !m.late && !m.ended {
		m.lane.prompt--
	}
	m.leaving = true
	if m.lane.drainer == m {
		m.lane.drainer = nil
	}
	m.finishLocked()
	m.lane.rouse()
	m.lane.seekHelp(manyLooks)
	g.unlock()
	m.broker.forgetIfEnded(m)
}

// Left ends the membership cleanly: what is in flight is given back and counts no attempt.
func (m *Member) Left() { m.end(EndLeft) }

// Revoke ends the membership since its owner has lost the right to it. What is in flight is given back and counts no attempt. It
// does nothing when it has ended.
func (m *Member) Revoke() { m.end(EndRevoked) }

// finishLocked ends a member that has nothing in flight and is to get nothing more.
func (m *Member) finishLocked() {
	switch {
	case m.inFlight > 0:
	case m.leaving:
		m.endLocked(EndLeft)
	case m.draining && !m.group.mayHaveMoreLocked():
		m.endLocked(EndShuttingDown)
	}
}

func (m *Member) end(reason EndReason) {
	m.group.mu.Lock()
	m.endLocked(reason)
	m.group.unlock()
	m.broker.forget(m)
}

// endLocked gives back what is in flight, in order, to the front of the queue.
func (m *Member) endLocked(reason EndReason) {
	if m.ended {
		return
	}
	g := m.group
	m.ended = true
	m.ending = Ending{
		Reason:       reason,
		Text:         reason.String(),
		LastSequence: m.sequence,
		Lived:        g.broker.clock.Now().Sub(m.created),
	}
	if reason == EndStalled {
		m.ending.Text = "took nothing for " + g.broker.options.SendTimeout.String()
	}
	if m.writing > 0 {
		m.ending.LastSequence = m.writing - 1
	}
	m.unpark()
	m.lane.leave(m)
	clean := m.leaving || reason == EndLeft || reason == EndShuttingDown || reason == EndRevoked
	m.eachLocked(1, m.sequence, func(p *parcel) {
		crash := !clean && (m.writing == 0 || p.first < m.writing)
		g.giveBackLocked(p, giveBack{charge: crash, crash: crash})
	})
	m.held = ring[*keyState]{}
	g.memberGoneLocked(m.lane)
	close(m.done)
}
