package core

import "time"

// parcel is n neighbouring messages of a frame on their way through a group: they have been delivered equally often and
// share whatever happens to them until one of them is settled apart from the others. A message with a key is a parcel of
// its own. Guarded by the group's mu.
type parcel struct {
	extent
	n       int
	lane    *lane
	order   uint64    // the first message's place in the group's order of arrival; the others count on
	queued  time.Time // when it came
	key     *keyState // nil: no key
	attempt int       // deliveries so far
	crashes int       // how many of those ended with the member's stream
	shared  bool      // may be for other lanes too

	// While it waits for another attempt, or for its key, or for both.
	due    time.Time // zero: for no time
	behind bool      // is among those of its key that wait

	// While it is in flight.
	member   *Member
	first    uint64        // delivery number of the first message
	deadline time.Time     // not before it the ack is late; zero: not given to the stream yet, or no deadline
	written  time.Duration // since the broker's start, if the deadline does not count from there yet; else 0
	spot     int           // in the group's heap of deadlines or of delays; -1: in neither
}

func (p *parcel) last() uint64 { return p.first + uint64(p.n) - 1 }

// compactAlone exchanges a large frame, held for a small part of it, for a copy of that part.
func (p *parcel) compactAlone() {
	if p.frame.sparse(p.size(), 1) {
		p.compact()
	}
}

// newParcel returns a parcel from the group's spare ones.
func (g *group) newParcel() *parcel {
	if n := len(g.spare); n > 0 {
		p := g.spare[n-1]
		g.spare = g.spare[:n-1]
		return p
	}
	return &parcel{spot: -1}
}

// maxSpare bounds how many parcels a group keeps for reuse.
const maxSpare = 256

// discard gives up a parcel and its frame, and what was accounted for its messages.
func (g *group) discard(p *parcel) {
	p.frame.release()
	g.broker.memory.free(int64(p.n) * parcelOverhead)
	*p = parcel{spot: -1}
	if len(g.spare) < maxSpare {
		g.spare = append(g.spare, p)
	}
}

// split cuts the first n messages off p, which holds more than that, and returns them as a parcel of their own. What p
// is a member of (a member's deliveries, a heap), its head is not.
func (g *group) split(p *parcel, n int) *parcel {
	_, size := measure(g.encoding, p.data(), n, p.size())
	head := g.newParcel()
	*head = *p
	head.spot = -1
	head.frame.retain()
	head.n, head.end = n, p.start+uint32(size)
	p.n -= n
	p.start += uint32(size)
	p.order += uint64(n)
	p.first += uint64(n)
	return head
}

// parcelHeap is a heap of parcels by one of their times or by order, see less. It implements heap.Interface.
type parcelHeap struct {
	list []*parcel
	less func(a, b *parcel) bool
}

// usualHeap is for how many parcels a heap keeps room when it holds few.
const usualHeap = 256

func byOrder(a, b *parcel) bool    { return a.order < b.order }
func byDue(a, b *parcel) bool      { return a.due.Before(b.due) }
func byDeadline(a, b *parcel) bool { return a.deadline.Before(b.deadline) }

func (h *parcelHeap) Len() int           { return len(h.list) }
func (h *parcelHeap) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }

func (h *parcelHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].spot, h.list[j].spot = i, j
}

func (h *parcelHeap) Push(x any) {
	p := x.(*parcel)
	p.spot = len(h.list)
	h.list = append(h.list, p)
}

func (h *parcelHeap) Pop() any {
	last := len(h.list) - 1
	p := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	if cap(h.list) > usualHeap && last <= cap(h.list)/8 {
		h.list = append(make([]*parcel, 0, 2*last), h.list...)
	}
	p.spot = -1
	return p
}

func (h *parcelHeap) holds(p *parcel) bool {
	return p.spot >= 0 && p.spot < len(h.list) && h.list[p.spot] == p
}

// front returns the least parcel; nil: there is none.
func (h *parcelHeap) front() *parcel {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}
