package core

import "time"

// What a member is given goes through a transport, which takes a frame long before it has written it. The transport tells what it has
// written: of the parts of a frame by Member.Progress, of whole deliveries by releasing the Hold.

// Progress notes that the stream has taken something of what it was given. It never waits, and is safe for concurrent use.
func (m *Member) Progress() {
	m.progress.Store(int64(max(1, m.broker.clock.Now().Sub(m.broker.started))))
}

// lastProgress returns since when the delivery under way has been waiting for the stream to take anything.
func (m *Member) lastProgress() time.Time {
	if at := m.broker.started.Add(time.Duration(m.progress.Load())); at.After(m.writingSince) {
		return at
	}
	return m.writingSince
}

// hasDeadline reports whether what the member is given has an ack deadline.
func (m *Member) hasDeadline() bool {
	return m.group.settings.Ack != AckNone && *m.group.settings.AckDeadline > 0
}

// written notes that everything up to a delivery number is written.
//
// The transport calls it, which must not be kept waiting, nor be called from here: so no letters are sent.
func (m *Member) written(last uint64) {
	m.Progress()
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	if m.ended || last <= m.writtenTo {
		return
	}
	i := m.searchLocked(m.writtenTo + 1)
	m.writtenTo = last
	for ; i < len(m.flights) && m.flights[i].first <= last; i++ {
		m.flights[i].written = time.Duration(m.progress.Load())
	}
}

// dueLocked returns when the ack deadline of p passes, which is in flight at the member, by what is known of its being written. Until it
// is, it is on its way for as long as the stream takes something. The zero time: nothing is known.
func (m *Member) dueLocked(p *parcel) time.Time {
	if !m.hasDeadline() {
		return time.Time{}
	}
	at := p.written
	if p.first > m.writtenTo {
		at = time.Duration(m.progress.Load())
	}
	if at == 0 {
		return time.Time{}
	}
	return m.broker.started.Add(at + *m.group.settings.AckDeadline)
}
