package core

import (
	"fmt"
	"sync/atomic"
	"time"
)

// OverflowPolicy says what happens to a message for which a queue has no room.
type OverflowPolicy int

// The overflow policies.
const (
	// OverflowDefault is OverflowEvict for a broadcast subscription.
	OverflowDefault OverflowPolicy = iota
	// OverflowEvict ends the subscription.
	OverflowEvict
	// OverflowDropOldest makes room by dropping the messages that have waited longest.
	OverflowDropOldest
	// OverflowDropNewest drops the message that does not fit.
	OverflowDropNewest
	// OverflowReject refuses the publish; consumer groups only.
	OverflowReject
)

// String returns the policy as configurations spell it.
func (p OverflowPolicy) String() string {
	switch p {
	case OverflowDefault:
		return "default"
	case OverflowEvict:
		return "evict"
	case OverflowDropOldest:
		return "drop-oldest"
	case OverflowDropNewest:
		return "drop-newest"
	case OverflowReject:
		return "reject"
	}
	return fmt.Sprintf("OverflowPolicy(%d)", int(p))
}

// SubscribeOptions describe a broadcast subscription.
type SubscribeOptions struct {
	// ID names the subscription; empty: the broker makes one up. A live subscription of that name is ended as replaced.
	ID string
	// Patterns say what to receive; at least one that does not exclude.
	Patterns []string
	// Client and Peer are labels for people: who subscribes and from where. Either may be empty.
	Client, Peer string
	// Access is on whose behalf.
	Access Access
	// Overflow is the policy of the queue.
	Overflow OverflowPolicy
	// Capacity is the number of queue slots; 0 or more than the broker's ConsumerCapacity: that.
	Capacity int
}

// lagInterval is the least time between two warnings of one subscription.
const lagInterval = time.Second

// Subscription is one registered interest with its own bounded queue. Publishers fill it; one owner takes from it.
//
// Take, Settle and Close are for the owner, one call at a time for Take; everything else is safe for concurrent use.
type Subscription struct {
	intake
	endpoint

	direct atomic.Pointer[func() bool] // see Direct

	// Guarded by the intake's mu.
	queue        queue
	draining     bool
	ending       Ending
	sequence     uint64    // last delivery number given out
	taken        time.Time // when it last took something, or found its queue empty and then not
	droppedFront uint64    // dropped before the queue's front
	droppedBack  uint64    // dropped after the queue's back
	dropped      uint64    // by policy, in all
	outMeter     meter
	waited       int  // samples in a row that found messages waiting and none taken since the one before
	lagging      bool // past three quarters, not yet told
	lagTold      time.Time
}

// Direct lets publishers do the owner's work: one who has put a small batch into an empty queue calls f, which takes and settles in the
// owner's place, instead of waking the owner. That saves a message alone the wait until the owner's turn to run comes. f holds up the
// publisher, so it must not block; false means that the owner is to be woken after all. f is called without locks, in any goroutine.
func (s *Subscription) Direct(f func() bool) { s.direct.Store(&f) }

// serve has what the queue holds taken, by a publisher or else by the owner.
func (s *Subscription) serve() {
	if f := s.direct.Load(); f == nil || !(*f)() {
		s.rouse()
	}
}

// Overflow returns the policy in force.
func (s *Subscription) Overflow() OverflowPolicy { return s.overflow }

// Capacity returns the bounds in force, in messages and bytes.
func (s *Subscription) Capacity() (slots int, bytes int64) {
	return int(s.capacity), s.capacityBytes
}

// Ending tells why the subscription ended; the zero value while it has not.
func (s *Subscription) Ending() Ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// Queued returns how many messages wait, and their bytes.
func (s *Subscription) Queued() (messages, bytes int64) { return s.fill.load() }

// Take moves what waits into d, up to about maxBytes and at least one message, and reports whether there was anything.
// It never blocks. Every delivery must be settled.
func (s *Subscription) Take(d *Delivery, maxBytes int64) bool {
	d.reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	if s.queue.len == 0 {
		if s.draining {
			s.endLocked(EndShuttingDown, EndShuttingDown.String(), 0)
		}
		return false
	}
	d.FirstSequence = s.sequence + 1
	d.Attempt = 1
	d.DroppedBefore = s.droppedFront + uint64(s.queue.front().before)
	s.droppedFront = 0
	s.queue.front().before = 0
	for s.queue.len > 0 && s.queue.front().before == 0 && len(d.Pieces) < maxPieces {
		e, ok := s.takeEntry(maxBytes-d.Bytes, d.Count == 0)
		if !ok {
			break
		}
		d.add(e)
	}
	s.queue.lend(d)
	if s.queue.len > 0 {
		s.taken = s.broker.clock.Now()
	} else {
		s.queue.settleRoom(&s.broker.memory)
	}
	s.sequence += uint64(d.Count)
	left, leftBytes := s.takenLocked(int64(d.Count), d.Bytes)
	if s.lagging {
		d.Lagging = s.warnLocked(left+int64(d.Count), leftBytes+d.Bytes)
	}
	return true
}

// takeEntry removes the front entry, or as much of it as fits in room; force takes at least one record.
func (s *Subscription) takeEntry(room int64, force bool) (entry, bool) {
	front := s.queue.front()
	if front.size() <= room {
		return s.queue.pop(), true
	}
	n, size := measure(s.encoding, front.data(), int(front.n), room)
	if n == 0 {
		if !force {
			return entry{}, false
		}
		n, size = measure(s.encoding, front.data(), 1, front.size())
	}
	if n == int(front.n) {
		return s.queue.pop(), true
	}
	return s.queue.split(uint32(n), uint32(size)), true
}

// warnLocked returns a warning unless there was one less than a second ago.
func (s *Subscription) warnLocked(queued, bytes int64) *Lagging {
	s.lagging = false
	now := s.broker.clock.Now()
	if !s.lagTold.IsZero() && now.Sub(s.lagTold) < lagInterval {
		return nil
	}
	s.lagTold = now
	return &Lagging{Queued: queued, QueuedBytes: bytes, Capacity: int(s.capacity)}
}

// Settle says what became of a delivery: written to the stream, or lost with it. The delivery's pieces are not to be used
// any more. A lost one counts in the subscription's Ending, and so does what was dropped before it.
func (s *Subscription) Settle(d *Delivery, written bool) {
	if d.Count == 0 {
		return
	}
	if written {
		s.broker.counters.delivered.Add(uint64(d.Count))
		s.broker.counters.deliveredBytes.Add(uint64(d.Bytes))
		s.broker.observeLatency(d)
	} else {
		s.amendEnding(d)
	}
	d.reset()
}

// amendEnding counts a delivery that was under way when the subscription ended, and never arrived, as lost with it.
func (s *Subscription) amendEnding(d *Delivery) {
	s.mu.Lock()
	s.sequence -= uint64(d.Count)
	if s.ended {
		s.ending.Lost += uint64(d.Count)
		s.ending.Dropped += d.DroppedBefore
		s.ending.LastSequence = s.sequence
	}
	ending := s.ending
	s.mu.Unlock()
	s.broker.counters.drop(dropWith(ending.Reason), d.Count)
	if ending.Reason == EndEvicted || ending.Reason == EndStalled {
		s.broker.amend(s.id, ending)
	}
}

// Close ends the subscription on its owner's behalf. It does nothing when it has ended already.
func (s *Subscription) Close() { s.end(EndClosed) }

// Leave ends the subscription at its subscriber's wish. It does nothing when it has ended already.
func (s *Subscription) Leave() { s.end(EndLeft) }

// Revoke ends the subscription since its owner has lost the right to it. It does nothing when it has ended already.
func (s *Subscription) Revoke() { s.end(EndRevoked) }

func (s *Subscription) end(reason EndReason) {
	s.mu.Lock()
	s.endLocked(reason, reason.String(), 0)
	s.mu.Unlock()
	s.broker.forget(s)
}

// drain ends the subscription once its queue has been taken.
func (s *Subscription) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	if s.queue.len == 0 {
		s.endLocked(EndShuttingDown, EndShuttingDown.String(), 0)
	}
}

// endLocked drops the queue, which frees its memory at once, and lets go of everybody who waits. extra messages that
// never made it into the queue count as lost with it. The caller makes the broker forget the subscription once mu is free.
func (s *Subscription) endLocked(reason EndReason, text string, extra int) {
	if s.ended {
		return
	}
	s.ended = true
	queued, bytes := 0, int64(0)
	dropped := s.droppedFront + s.droppedBack
	for s.queue.len > 0 {
		e := s.queue.pop()
		queued += int(e.n)
		dropped += uint64(e.before)
		bytes += e.size()
		e.frame.release()
	}
	lost := uint64(queued + extra)
	s.queue.slots = nil
	s.queue.settleRoom(&s.broker.memory)
	s.queue = queue{}
	s.ending = Ending{
		Reason:       reason,
		Lost:         lost,
		Dropped:      dropped,
		Queued:       queued,
		QueuedBytes:  bytes,
		Text:         text,
		LastSequence: s.sequence,
		Lived:        s.broker.clock.Now().Sub(s.created),
	}
	s.broker.counters.drop(dropWith(reason), queued+extra)
	s.releaseWaitersLocked()
	close(s.done)
}
