package rpc

import "time"

// lease says how often the deadline of what a member holds is extended, and for how long. The zero value: never.
type lease struct {
	period time.Duration // the clock's tick
	ticks  int           // how many of them a handler may take
	limit  time.Duration // the same as a time
}

// extensionsPerDeadline leaves room for one that comes late.
const extensionsPerDeadline = 3

// newLease returns the lease for an ack deadline, 0 being none, and SubscribeOptions.MaxExtension.
func newLease(deadline, limit time.Duration) lease {
	if deadline <= 0 || limit < 0 {
		return lease{}
	}
	if limit == 0 {
		limit = defaultMaxExtension
	}
	limit = max(limit, deadline)
	period := max(deadline/extensionsPerDeadline, time.Millisecond)
	return lease{period: period, ticks: int((limit + period - 1) / period), limit: limit}
}

// tick reports whether deadlines are to be extended: whether a delivery is held whose handler may still return in time. One that
// did not loses its delivery, and the member leaves.
func (m *membership) tick() (extend bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last || m.ended {
		return false
	}
	late := 0
	for i := range m.running {
		h := &m.running[i]
		h.ticks++
		if h.ticks > m.lease.ticks && !h.overdue {
			h.overdue = true
			m.replies.nack(h.sequence, *overdue(m.lease.limit))
			m.leaving = true
		}
		if h.overdue {
			late++
		}
	}
	m.settleLocked()
	return m.held > late
}
