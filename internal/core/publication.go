package core

import (
	"sync"
	"time"
)

// publication is the state of one Publish.
type publication struct {
	id       uint64
	frame    *frame // nil: there is no room for one
	now      time.Time
	patience time.Duration
	grace    time.Duration
	own      bool            // the broker's own: may exceed max_memory a little, and goes on while it drains
	need     int64           // size of the message that found no room
	waited   time.Duration   // with patience, since something was queued
	gaveUp   []*intake       // waited for in vain
	room     int64           // accounted for what groups will need beside the bytes, see book
	short    int64           // how much more of it there must be
	vain     bool            // that was waited for in vain
	granted  []bool          // scratch of fanOut
	ended    []*Subscription // evicted on the way, to be forgotten once no lock is held
	crowded  bool            // a receiver's queue is more than half full
	matched  int             // copies for broadcast subscriptions
	light    bool            // the batch is small
	empty    []*Subscription // had an empty queue, and are to be served once no lock is held
}

var publications = sync.Pool{New: func() any { return new(publication) }}

// newPublication returns the state of a Publish of batch, whose bytes f holds. It must be discarded.
func (b *Broker) newPublication(f *frame, batch *Batch) *publication {
	p := publications.Get().(*publication)
	p.id, p.now = b.publications.Add(1), b.clock.Now()
	p.frame, p.patience, p.grace = f, batch.MaxWait, frameGrace
	p.vain, p.crowded, p.matched = false, false, 0
	p.light = len(batch.Data) <= lightBatch
	if f != nil {
		f.born = p.now.Sub(b.started)
	}
	return p
}

// discard gives p back to the pool, with nothing in it that refers to anything.
func (p *publication) discard() {
	clear(p.gaveUp)
	p.frame, p.gaveUp = nil, p.gaveUp[:0]
	publications.Put(p)
}

const (
	// lightBatch is how many bytes a batch may have for its publisher to serve subscriptions itself, and lightReceivers how many of those
	// it serves: not so many that the last one would be better off on another processor (decision 0018).
	lightBatch     = 16 << 10
	lightReceivers = 128
)

// serveLater notes that s is to be served, unless it is better woken at once.
func (p *publication) serveLater(s *Subscription) bool {
	if !p.light || len(p.empty) == lightReceivers || s.direct.Load() == nil {
		return false
	}
	p.empty = append(p.empty, s)
	return true
}

// serve serves those whose queues were empty. No lock is held but the gate.
func (p *publication) serve() {
	for i, s := range p.empty {
		s.serve()
		p.empty[i] = nil
	}
	p.empty = p.empty[:0]
}

// reserve reserves room for n records at all receivers, or at none. It returns n when that worked (granted then tells
// where a reservation was made; elsewhere the overflow policy is to apply), a smaller number when that many would
// fit everywhere; and when none would, whom to wait for or the error of the one who refuses.
func (p *publication) reserve(receivers []receiver, data []byte, n int) (k int, blocked *intake, err error) {
	p.granted = p.granted[:0]
	size := int64(len(data))
	for i := 0; i < len(receivers); {
		in := receivers[i].box()
		if in.reserve(p.patience > 0, int64(n), size) {
			p.granted = append(p.granted, true)
			i++
			continue
		}
		k, v := in.room(p, data, n)
		if v == overflows {
			p.granted = append(p.granted, false)
			i++
			continue
		}
		if k == n {
			// Room has appeared between the two looks; or the receiver would refuse, but the last quarter of its queue,
			// which a patient publisher leaves alone while it waits, has room.
			if in.reserve(false, int64(n), size) {
				p.granted = append(p.granted, true)
				i++
			}
			continue
		}
		p.unreserve(receivers, int64(n), size)
		switch {
		case v == refuses:
			return 0, nil, receivers[i].(refuser).refusal()
		case k == 0:
			return 0, in, nil
		}
		return k, nil, nil
	}
	return n, nil, nil
}

// unreserve gives back what reserve has reserved.
func (p *publication) unreserve(receivers []receiver, n, size int64) {
	for i, granted := range p.granted {
		if granted {
			receivers[i].box().unreserve(n, size)
		}
	}
}

// refuser is a receiver whose policy may be OverflowReject.
type refuser interface{ refusal() error }
