package core

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

// heldLocked returns a key that this member holds and of which it may have more now; nil: there is none.
func (m *Member) heldLocked() *keyState {
	for m.held.len > 0 {
		st := *m.held.front()
		if st.held && st.next(m) != nil {
			return st
		}
		m.dropHeldLocked()
	}
	return nil
}

func (m *Member) dropHeldLocked() {
	st := m.held.popFront()
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
