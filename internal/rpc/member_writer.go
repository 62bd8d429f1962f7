package rpc

import (
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// utterance is what a member says in one go.
type utterance struct {
	replies
	extend  bool                 // more time for everything in flight
	leave   bool                 // nothing more, please
	release []core.SequenceRange // back with what no handler has begun with
	last    bool                 // that was all
}

// write is the stream's one writer. What comes up while it sends goes out together, without a timer.
func (m *membership) write() {
	defer close(m.written)
	var ticks <-chan time.Time
	if m.lease.period > 0 {
		ticker := time.NewTicker(m.lease.period)
		defer ticker.Stop()
		ticks = ticker.C
	}
	var u utterance
	for {
		u.extend = false
		select {
		case <-m.wake:
		case <-ticks:
			u.extend = m.tick()
		}
		for m.collect(&u) {
			if m.say(&u) != nil {
				m.over() // why, receiving tells
				return
			}
			if u.last {
				_ = m.stream.CloseSend() // it never fails
				return
			}
			u.extend = false
		}
		if m.isOver() {
			return
		}
	}
}

// collect takes what there is to say; false: nothing.
func (m *membership) collect(u *utterance) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return false
	}
	u.reset()
	u.replies, m.replies = m.replies, u.replies
	u.last = m.last
	u.leave = m.leaving && !m.told
	m.told = m.leaving
	u.release = nil
	if u.leave && !u.last {
		u.release = allBut(m.numbersLocked())
	}
	m.numberLocked(u)
	return !u.empty() || u.extend || u.leave || u.last
}

// numberLocked counts the requests of an utterance, in the order in which say sends them. The broker has no more than max_in_flight deliveries under way
// that it does not know to be settled, and no more than as many are here.
func (m *membership) numberLocked(u *utterance) {
	settled := m.settledLocked() + 2*m.most
	count := func(is bool) {
		if is {
			m.said++
		}
	}
	count(len(u.acks) > 0)
	count(u.leave)
	for _, n := range u.nacks {
		m.said++
		m.failed.tell(n.ranges, m.said, settled)
	}
	count(u.extend)
	count(len(u.release) > 0)
}

// numbersLocked returns the deliveries that handlers are working on.
func (m *membership) numbersLocked() []uint64 {
	numbers := make([]uint64, len(m.running))
	for i, h := range m.running {
		numbers[i] = h.sequence
	}
	return numbers
}

func (m *membership) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ended
}

// say sends an utterance, a request for each kind. What is given back on leaving must not come here again, so leave goes first.
func (m *membership) say(u *utterance) error {
	if len(u.acks) > 0 {
		if err := m.stream.SendMsg(frameOfBytes(appendAck(nil, joined(u.acks)))); err != nil {
			return err
		}
	}
	if u.leave {
		if err := m.stream.SendMsg(leaveRequest()); err != nil {
			return err
		}
	}
	for _, n := range u.nacks {
		if err := m.stream.SendMsg(nackRequest(n)); err != nil {
			return err
		}
	}
	if u.extend {
		if err := m.stream.SendMsg(extendRequest(allBut(nil))); err != nil {
			return err
		}
	}
	if len(u.release) > 0 {
		return m.stream.SendMsg(nackRequest(nacked{core.Nack{Action: core.NackRelease}, u.release}))
	}
	return nil
}
