package core

import (
	"math"
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
	writtenTo    uint64      // last delivery number that is known to be written, where there is an ack deadline
	held         []*keyState // keys it holds of which more is waiting
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
	for _, p := range m.flights {
		if p.key != nil {
			p.key.offer()
		}
	}
}

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

// Take moves messages of one attempt into d, up to about maxBytes, and reports whether there were any for this member. It never blocks.
// Every delivery must be settled. What is taken is in flight until it is acknowledged, given back or, without acks, written.
func (m *Member) Take(d *Delivery, maxBytes int64) bool {
	d.reset()
	g := m.group
	g.mu.Lock()
	defer g.unlock()
	if m.ended {
		return false
	}
	ready := m.lane.ready
	m.takeLocked(d, maxBytes)
	if d.Count != ready-m.lane.ready || m.alone || m.lane.drainer == m {
		m.lane.seekHelp(fewLooks) // it can be given less of what is ready than before
		if d.Count == 0 && m.lane.drainer == nil {
			m.takeLocked(d, maxBytes) // the suspect that it was to wait for may be elsewhere
		}
	}
	if d.Count == 0 {
		m.park()
		m.finishLocked()
		m.lane.rouse() // others may have waited for this one to take something
		return false
	}
	g.deliveries++
	m.served = g.deliveries
	if m.hasDeadline() {
		d.member = m
	}
	m.writing = d.FirstSequence
	m.writingSince = g.broker.clock.Now()
	g.armLocked(m.writingSince.Add(g.broker.options.SendTimeout))
	g.takenLocked(int64(d.Count), d.Bytes)
	m.lane.rouse()
	return true
}

func (m *Member) takeLocked(d *Delivery, maxBytes int64) {
	if !m.mayTake() {
		return
	}
	d.FirstSequence, d.Heard = m.sequence+1, m.heard
	credit := m.credit()
	share := 0
	if m.lane.ready > 0 {
		share = m.lane.share(m)
	}
	for d.Count < credit && !m.alone && len(d.Pieces) < maxPieces {
		var p *parcel
		st := m.heldLocked()
		if st != nil && (share == 0 || m.lane.isAfter(*st.waiting.front())) {
			p = m.nextHeldLocked(st, d, maxBytes-d.Bytes)
		} else if share > 0 {
			p = m.nextLocked(d, min(credit-d.Count, share), maxBytes-d.Bytes)
			if p != nil {
				share -= p.n
			} else if st != nil && d.Count == 0 && m.isFree() {
				// What comes first there is for others.
				p = m.nextHeldLocked(st, d, maxBytes)
			}
		}
		if p == nil {
			return
		}
		m.giveLocked(d, p)
	}
}

// isAfter reports whether p has come before everything that waits in the lane.
func (l *lane) isAfter(p *parcel) bool {
	oldest := l.oldest()
	return oldest == nil || p.order < oldest.order
}

// giveLocked puts p in flight.
func (m *Member) giveLocked(d *Delivery, p *parcel) {
	if p.attempt > 0 {
		m.group.counters.redelivered += uint64(p.n)
	}
	p.attempt++
	p.member, p.first = m, m.sequence+1
	m.sequence += uint64(p.n)
	m.group.counters.delivered += uint64(p.n)
	m.inFlight += p.n
	m.group.inFlight += p.n
	m.flights = append(m.flights, p)
	if d.Count == 0 {
		d.born = p.frame.born
	}
	d.Attempt = p.attempt
	d.keep(p.frame)
	d.Pieces = append(d.Pieces, p.data())
	d.Count += p.n
	d.Bytes += p.size()
	if p.key != nil {
		p.key.give(m, p)
	}
}

// keep makes the delivery hold f, whoever else lets go of it: an ack, or a deadline, may come before the transport has written it.
func (d *Delivery) keep(f *frame) {
	if n := len(d.frames); n > 0 && d.frames[n-1] == f {
		return
	}
	f.retain()
	d.frames = append(d.frames, f)
}

// goesWith reports whether p may be in one delivery with what d holds already: all are of one attempt.
func (d *Delivery) goesWith(p *parcel) bool { return d.Count == 0 || d.Attempt == p.attempt+1 }

// heldLocked returns a key that this member holds and of which it may have more now; nil: there is none.
func (m *Member) heldLocked() *keyState {
	for len(m.held) > 0 {
		st := m.held[0]
		if st.held && st.next(m) != nil {
			return st
		}
		m.dropHeldLocked()
	}
	return nil
}

func (m *Member) dropHeldLocked() {
	st := m.held[0]
	m.held[0] = nil
	m.held = m.held[1:]
	if st.holder == m {
		st.held = false
	}
}

// nextHeldLocked removes the next message of a key that heldLocked has returned. Should there be more, other keys are next.
func (m *Member) nextHeldLocked(st *keyState, d *Delivery, room int64) *parcel {
	p := st.next(m)
	if !d.goesWith(p) || p.size() > room && d.Count > 0 {
		return nil
	}
	m.dropHeldLocked()
	return st.pop()
}

// nextLocked removes up to n messages from the lane.
func (m *Member) nextLocked(d *Delivery, n int, room int64) *parcel {
	l := m.lane
	if m.onProbation() {
		return l.takeOut(*l.fresh.front(), 1)
	}
	if suspect := l.suspects.front(); suspect != nil {
		if m.inFlight == 0 {
			m.alone = true
			p := l.takeOut(suspect, 1)
			l.undrain()
			return p
		}
		if l.drainer == nil && m.inFlight > 0 && d.Count == 0 {
			l.drainer = m // the next suspect is for this member, as soon as it has nothing else
			l.rouse()
			return nil
		}
	}
	p, most := l.next()
	if p == nil || !d.goesWith(p) {
		return nil
	}
	k := p.n
	if k > min(n, most) || p.size() > room {
		k, _ = measure(m.group.encoding, p.data(), min(n, most), room)
	}
	if k == 0 && d.Count == 0 {
		k = 1
	}
	if k == 0 {
		return nil
	}
	return l.takeOut(p, k)
}

// Settle says what became of a delivery: written to the stream, or given to whoever writes it and releases a Hold of it then; or not. Its
// ack deadline runs from the moment it is written. What was not written is given back and counts no attempt.
func (m *Member) Settle(d *Delivery, written bool) {
	if d.Count == 0 {
		return
	}
	g := m.group
	if written {
		g.broker.counters.deliveredGroup.Add(uint64(d.Count))
		g.broker.counters.deliveredBytes.Add(uint64(d.Bytes))
		g.broker.observeLatency(d)
	}
	g.mu.Lock()
	defer g.unlock()
	first, last := d.FirstSequence, d.FirstSequence+uint64(d.Count)-1
	m.writing = 0
	if d.member != nil { // nobody holds it
		m.writtenTo = last
	}
	d.reset()
	switch {
	case m.ended && written:
		m.ending.LastSequence = last
	case m.ended:
	case !written:
		m.eachLocked(first, last, func(p *parcel) { g.giveBackLocked(p, giveBack{}) })
		m.lane.seekHelp(fewLooks)
	case g.settings.Ack == AckNone:
		m.eachLocked(first, last, g.doneLocked)
	default:
		m.startDeadlinesLocked(first, last, *g.settings.AckDeadline)
	}
	m.freedLocked()
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
	m.held = nil
	g.memberGoneLocked(m.lane)
	close(m.done)
}
