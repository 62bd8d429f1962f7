package core

import (
	"fmt"
	"math"
)

// box implements receiver.
func (s *Subscription) box() *intake { return &s.intake }

// addTo implements interest.
func (s *Subscription) addTo(receivers []receiver, _ groupRoutes) []receiver {
	return append(receivers, s)
}

// commit implements receiver.
func (s *Subscription) commit(p *publication, _ *Run, start, end uint32, n int, reserved bool) fate {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return missed
	}
	p.matched += n
	empty := s.queue.len == 0
	var took bool
	if reserved || s.reserve(false, int64(n), int64(end-start)) {
		took = s.pushLocked(p, start, end, n)
	} else {
		took = s.overflowLocked(p, start, end, n)
	}
	if empty {
		s.taken = p.now
	}
	p.crowded = p.crowded || s.over(2)
	s.lagging = s.lagging || s.over(3)
	s.mu.Unlock()
	if empty && !p.serveLater(s) {
		s.rouse()
	}
	if !took {
		return discarded
	}
	return taken
}

// pushLocked queues n records for which room is reserved. False: there is none in the broker's memory for a queue that long.
func (s *Subscription) pushLocked(p *publication, start, end uint32, n int) bool {
	before := uint32(min(s.droppedBack, math.MaxUint32)) // more than that is told with the next entry
	if !s.queue.push(p.frame, start, end, uint32(n), before) {
		s.takenLocked(int64(n), int64(end-start))
		if s.overflow == OverflowEvict {
			s.evictForMemoryLocked(n)
			p.ended = append(p.ended, s)
		} else {
			s.dropBackLocked(DropMemory, n)
		}
		return false
	}
	s.droppedBack -= uint64(before)
	s.noteLocked(p, n, int64(end-start))
	return true
}

// evictForMemoryLocked is endLocked for when the broker's memory is full.
func (s *Subscription) evictForMemoryLocked(extra int) {
	s.endLocked(EndEvicted, fmt.Sprintf("memory full (%d bytes)", s.broker.memory.limit), extra)
	s.ending.memory = true
}

// overflowLocked applies the overflow policy to n records that do not fit.
func (s *Subscription) overflowLocked(p *publication, start, end uint32, n int) (took bool) {
	switch s.overflow {
	case OverflowDropOldest:
		skipped, length := s.excess(p.frame.data[start:end], n)
		s.dropBackLocked(DropOldest, skipped)
		start, n = start+uint32(length), n-skipped
		size := int64(end - start)
		s.reserveDropping(int64(n), size, func() bool { return s.dropFrontLocked(int64(n), size) })
		s.queue.settleRoom(&s.broker.memory)
		return s.pushLocked(p, start, end, n)
	case OverflowDropNewest:
		k, size := s.reserveFirst(p.frame.data[start:end], n)
		if k > 0 {
			took = s.pushLocked(p, start, start+uint32(size), k)
		}
		s.dropBackLocked(DropNewest, n-k)
		return took
	default:
		s.endLocked(EndEvicted, s.fullText(n), n)
		p.ended = append(p.ended, s)
		if p.own {
			p.grace = frameGrace // what this one has used up is not to be the others' loss
		}
		return false
	}
}

// fullText says which bound n more messages would exceed.
func (s *Subscription) fullText(n int) string {
	if used, _ := s.fill.load(); used+int64(n) > s.capacity {
		return fmt.Sprintf("queue full (%d)", s.capacity)
	}
	return fmt.Sprintf("queue full (%d bytes)", s.capacityBytes)
}

// dropFrontLocked drops as much of the queue's front entry as is needed to make room for n records of size bytes. False: the queue is empty.
func (s *Subscription) dropFrontLocked(n, size int64) bool {
	if s.queue.len == 0 {
		return false
	}
	front := s.queue.front()
	used, usedBytes := s.fill.load()
	needSlots, needBytes := used+n-s.capacity, usedBytes+size-s.capacityBytes
	data := front.data()
	drop, length := 0, int64(0)
	for drop < int(front.n) && (int64(drop) < needSlots || length < needBytes) {
		length += int64(s.encoding.Len(data[length:]))
		drop++
	}
	if drop == 0 {
		return true
	}
	var e entry
	if drop == int(front.n) {
		e = s.queue.pop()
	} else {
		e = s.queue.split(uint32(drop), uint32(length))
	}
	s.dropEntryLocked(DropOldest, e)
	return true
}

// dropEntryLocked counts what was taken from the front as dropped.
func (s *Subscription) dropEntryLocked(why DropReason, e entry) {
	e.frame.release()
	s.fill.remove(int64(e.n), e.size())
	s.droppedFront += uint64(e.n) + uint64(e.before)
	s.dropped += uint64(e.n)
	s.broker.counters.drop(why, int(e.n))
}

func (s *Subscription) dropBackLocked(why DropReason, n int) {
	s.droppedBack += uint64(n)
	s.dropped += uint64(n)
	s.broker.counters.drop(why, n)
}
