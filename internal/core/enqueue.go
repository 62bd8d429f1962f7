package core

import (
	"fmt"
	"slices"
)

// The publisher's side of a subscription: reserve or room, then commit. Reservations are only made under the lock of
// the topic's shard, and never outlive it.

// limits returns how full the queue may become. A patient publisher leaves the last quarter to the others.
func (s *Subscription) limits(patient bool) (slots, bytes int64) {
	if patient {
		return s.capacity - s.capacity/4, s.capacityBytes - s.capacityBytes/4
	}
	return s.capacity, s.capacityBytes
}

// reserve sets room aside for n messages of size bytes, all or nothing.
func (s *Subscription) reserve(patient bool, n, size int64) bool {
	slots, bytes := s.limits(patient)
	return s.fill.reserve(n, size, slots, bytes)
}

// unreserve gives a reservation back.
func (s *Subscription) unreserve(n, size int64) {
	slots, bytes := s.fill.remove(n, size)
	s.mu.Lock()
	s.relieveLocked(slots, bytes)
	s.mu.Unlock()
}

// relieveLocked lets waiting publishers go on once the queue is no more than half full.
func (s *Subscription) relieveLocked(slots, bytes int64) {
	if slots <= s.capacity/2 && bytes <= s.capacityBytes/2 {
		s.impatient = false
		s.releaseWaitersLocked()
	}
}

// room answers for a reservation of n records that failed: how many of them would fit now, or that there is no reason
// to wait and the overflow policy is to apply.
func (s *Subscription) room(p *publication, data []byte, n int) (k int, overflow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.waitsLocked(p) {
		return n, true
	}
	slots, bytes := s.limits(p.patience > 0)
	used, usedBytes := s.fill.load()
	free := min(int64(n), slots-used)
	if free <= 0 {
		return 0, false
	}
	k, _ = measure(s.broker.encoding, data, int(free), bytes-usedBytes)
	if k == 0 && used == 0 {
		k = 1
	}
	return k, false
}

// waitsLocked reports whether p may be held back for this subscription: if it has patience and nobody's patience has run
// out here, or if what fills the queue is p's own batch, at a subscription that was keeping up before it.
func (s *Subscription) waitsLocked(p *publication) bool {
	if p.patience > 0 {
		return !s.impatient
	}
	if s.overflow != OverflowEvict || p.grace <= 0 {
		return false
	}
	others, _ := s.fill.load()
	if s.frame == p.id {
		others -= s.frameSlots
	}
	return others <= s.capacity/4
}

// awaitRoom returns a channel that is closed when the queue is half empty or the subscription has ended; nil: there is
// room already.
func (s *Subscription) awaitRoom(p *publication) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.hasRoom(p) {
		return nil
	}
	w := make(chan struct{})
	s.waiters = append(s.waiters, w)
	return w
}

// endWait takes back a channel of awaitRoom. When the wait was in vain, no other patient publisher is to wait until the
// queue has drained: a frozen receiver costs them max_wait once, not once a frame.
func (s *Subscription) endWait(p *publication, w chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiters, w)
	if i < 0 {
		return
	}
	s.waiters = slices.Delete(s.waiters, i, i+1)
	if p.patience > 0 && !s.hasRoom(p) {
		s.impatient = true
	}
}

func (s *Subscription) hasRoom(p *publication) bool {
	slots, bytes := s.limits(p.patience > 0)
	used, usedBytes := s.fill.load()
	return used == 0 || used < slots && usedBytes < bytes
}

// commit queues n records of p's frame. Without a reservation the overflow policy applies if there is still no room.
// It reports whether the subscription took any of them.
func (s *Subscription) commit(p *publication, start, end uint32, n int, reserved bool) bool {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return false
	}
	empty := s.queue.len == 0
	took := true
	if reserved || s.reserve(false, int64(n), int64(end-start)) {
		s.pushLocked(p, start, end, n)
	} else {
		took = s.overflowLocked(p, start, end, n)
	}
	used, _ := s.fill.load()
	if used > s.capacity/2 {
		p.crowded = true
		if used > s.capacity-s.capacity/4 {
			s.lagging = true
		}
	}
	s.mu.Unlock()
	if empty {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return took
}

func (s *Subscription) pushLocked(p *publication, start, end uint32, n int) {
	s.queue.push(p.frame, start, end, uint32(n), s.droppedBack)
	s.droppedBack = 0
	if s.frame != p.id {
		s.frame, s.frameSlots = p.id, 0
	}
	s.frameSlots += int64(n)
}

// overflowLocked applies the overflow policy to n records that do not fit.
func (s *Subscription) overflowLocked(p *publication, start, end uint32, n int) (took bool) {
	data := p.frame.data
	switch s.overflow {
	case OverflowDropOldest:
		start, n = s.trimLocked(p, start, end, n)
		for !s.reserve(false, int64(n), int64(end-start)) {
			if s.queue.len == 0 {
				// What fills the queue is reserved by others, who wait for this lock. They will find room as well.
				s.fill.add(int64(n), int64(end-start))
				break
			}
			s.dropFrontLocked(int64(n), int64(end-start))
		}
		s.pushLocked(p, start, end, n)
		return true
	case OverflowDropNewest:
		used, usedBytes := s.fill.load()
		k, size := measure(s.broker.encoding, data[start:end], min(n, int(max(0, s.capacity-used))), s.capacityBytes-usedBytes)
		if k > 0 && s.reserve(false, int64(k), size) {
			s.pushLocked(p, start, start+uint32(size), k)
		} else {
			k = 0
		}
		s.dropBackLocked(n - k)
		return k > 0
	default:
		s.endLocked(EndEvicted, s.fullText(n), n)
		p.ended = append(p.ended, s)
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

// trimLocked drops the first of n records that are more than even an empty queue holds.
func (s *Subscription) trimLocked(p *publication, start, end uint32, n int) (uint32, int) {
	for n > 1 && (n > int(s.capacity) || int64(end-start) > s.capacityBytes) {
		start += uint32(s.broker.encoding.Len(p.frame.data[start:end]))
		n--
		s.dropBackLocked(1)
	}
	return start, n
}

// dropFrontLocked drops as much of the queue's front entry as is needed to make room for n records of size bytes.
func (s *Subscription) dropFrontLocked(n, size int64) {
	front := s.queue.front()
	used, usedBytes := s.fill.load()
	needSlots, needBytes := used+n-s.capacity, usedBytes+size-s.capacityBytes
	data := front.frame.data[front.start:front.end]
	drop, length := 0, int64(0)
	for drop < int(front.n) && (int64(drop) < needSlots || length < needBytes) {
		length += int64(s.broker.encoding.Len(data[length:]))
		drop++
	}
	if drop == 0 {
		return
	}
	var e entry
	if drop == int(front.n) {
		e = s.queue.pop()
	} else {
		e = s.queue.split(uint32(drop), uint32(length))
	}
	e.frame.release()
	s.fill.remove(int64(e.n), e.size())
	s.droppedFront += uint64(e.n) + uint64(e.before)
	s.broker.counters.dropped.Add(uint64(e.n))
}

func (s *Subscription) dropBackLocked(n int) {
	s.droppedBack += uint32(n)
	s.broker.counters.dropped.Add(uint64(n))
}
