package core

import "container/heap"

// makeRoomLocked applies a dropping overflow policy: it returns which part of frame.data[start:end] is to be queued, for
// which it has reserved room.
func (g *group) makeRoomLocked(f *frame, start, end uint32, n int) (uint32, uint32, int) {
	if g.overflow == OverflowDropNewest {
		k, size := g.reserveFirst(f.data[start:end], n)
		g.countDroppedLocked(DropNewest, n-k)
		return start, start + uint32(size), k
	}
	skipped, length := g.excess(f.data[start:end], n)
	g.countDroppedLocked(DropOldest, skipped)
	start, n = start+uint32(length), n-skipped
	g.reserveDropping(int64(n), int64(end-start), func() bool { return g.dropOldestLocked(n) || g.dropAsideLocked() })
	return start, end, n
}

// dropOldestLocked drops the oldest messages that wait in a lane, one parcel at most and no more than is needed for n
// others. False: none wait there.
func (g *group) dropOldestLocked(n int) bool {
	var oldest *parcel
	for _, l := range g.lanes {
		if p := l.oldest(); p != nil && (oldest == nil || p.order < oldest.order) {
			oldest = p
		}
	}
	if oldest == nil {
		return false
	}
	l := oldest.lane
	g.loseLocked(DropOldest, l.takeOut(oldest, max(1, int(g.waiting())+n-int(g.capacity))))
	l.undrainIfDone()
	l.help(fewLooks)
	return true
}

// dropAsideLocked drops a message that waits outside the lanes, for its key or for another attempt: of a few the oldest. False: none
// does.
func (g *group) dropAsideLocked() bool {
	const looks = 8
	oldest := g.delayed.front()
	if oldest != nil && oldest.behind {
		oldest = *oldest.key.waiting.front()
	}
	seen := 0
	for _, st := range g.keys {
		if st.waiting.len > 0 && (oldest == nil || (*st.waiting.front()).order < oldest.order) {
			oldest = *st.waiting.front()
		}
		if seen++; seen >= looks && oldest != nil {
			break
		}
	}
	switch {
	case oldest == nil:
		return false
	case oldest.n > 1:
		g.loseLocked(DropOldest, g.split(oldest, 1))
		return true
	case oldest.spot >= 0:
		heap.Remove(&g.delayed, oldest.spot)
	}
	if !oldest.behind {
		g.loseLocked(DropOldest, oldest)
		return true
	}
	st := oldest.key
	st.waiting.popFront()
	g.loseLocked(DropOldest, oldest)
	st.offer()
	return true
}

func (g *group) countDroppedLocked(why DropReason, n int) {
	g.counters.dropped += uint64(n)
	g.broker.counters.drop(why, n)
}
