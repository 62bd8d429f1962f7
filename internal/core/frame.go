package core

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// frame is a publisher's buffer, shared by every queue that holds records of it. It is never written to after it was
// handed over. Its bytes are accounted for as long as anyone holds a reference.
type frame struct {
	data   []byte
	refs   atomic.Int32
	claims int32 // those of refs that would go with the subscriptions that are looked at, see victims; guarded by Broker.reclaimMu
	mem    *memory
	born   time.Duration // when it came, since the broker's start

	copies atomic.Pointer[copies] // of parts of it; nil: there were none
	part   *part                  // what it is a copy of; nil: it came from a publisher
}

// part says what a frame is a copy of.
type part struct {
	among      *copies
	start, end uint32
}

// copies are what stands in for a frame at those who hold little of it: a copy of each part, shared by all who hold that part.
type copies struct {
	mu    sync.Mutex // no other is taken while it is held
	list  []*frame   // by part
	dead  int        // those in the list that nobody holds any more
	bytes int64      // what the others take
}

const (
	// frameOverhead is what a held frame costs beside its bytes: its own bookkeeping, the allocator's rounding and the queue entry that holds
	// it. Without it a million one-byte messages would look like a megabyte.
	frameOverhead = 128
	// copyOverhead is the same for a copy.
	copyOverhead = frameOverhead + 64
	// minSparse is the size of frames that are worth a copy of a part.
	minSparse = 4096
	// copyRoom is how far copies may exceed max_memory: where several hold little of a frame, it goes only when the last of them has a copy.
	copyRoom = 256 << 10
)

// newFrame accounts for data and returns it with one reference, or nil when memory is full.
func newFrame(m *memory, data []byte) *frame {
	if !m.acquire(int64(len(data)) + frameOverhead) {
		return nil
	}
	return adoptFrame(m, data)
}

// adoptFrame returns data, which has been accounted for, as a frame with one reference.
func adoptFrame(m *memory, data []byte) *frame {
	f := &frame{data: data, mem: m}
	f.refs.Store(1)
	return f
}

// cost is what is accounted for.
func (f *frame) cost() int64 {
	if f.part != nil {
		return int64(len(f.data)) + copyOverhead
	}
	return int64(len(f.data)) + frameOverhead
}

func (f *frame) retain() { f.refs.Add(1) }

// revive is retain for who holds no reference yet. False: nobody does.
func (f *frame) revive() bool {
	for {
		n := f.refs.Load()
		if n == 0 {
			return false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (f *frame) release() {
	if f.refs.Add(-1) > 0 {
		return
	}
	f.mem.free(f.cost())
	if f.part != nil {
		f.part.among.bury(f)
	}
}

// sparse reports whether holding f for the sake of some pieces of it, of so many bytes together, wastes more than it keeps.
func (f *frame) sparse(size int64, pieces int) bool {
	return len(f.data) >= minSparse && size+int64(pieces)*copyOverhead < int64(len(f.data)/2)
}

// copyOf returns a copy of f.data[start:end], with a reference for the caller, who has one to f and is about to release it. Nil: others hold f, and
// there is no room for a copy, or all of them together would take more than f does.
func (f *frame) copyOf(start, end uint32) *frame {
	all := f.copies.Load()
	if all == nil {
		all = new(copies)
		if !f.copies.CompareAndSwap(nil, all) {
			all = f.copies.Load()
		}
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	i, known := all.search(start, end)
	if known && all.list[i].revive() {
		return all.list[i]
	}
	size := int64(end-start) + copyOverhead
	if f.refs.Load() == 1 {
		f.mem.take(size) // f goes at once, and is larger
	} else if all.bytes+size > int64(len(f.data)) || !f.mem.acquireWithin(size, f.mem.limit+copyRoom) {
		return nil
	}
	c := adoptFrame(f.mem, slices.Clone(f.data[start:end]))
	c.born, c.part = f.born, &part{all, start, end}
	all.bytes += size
	if known {
		all.list[i] = c
		all.dead--
	} else {
		all.list = slices.Insert(all.list, i, c)
	}
	return c
}

// search returns where in the list the copy of a part is, or belongs.
func (c *copies) search(start, end uint32) (i int, known bool) {
	return slices.BinarySearchFunc(c.list, part{start: start, end: end}, func(f *frame, p part) int {
		return cmp.Or(cmp.Compare(f.part.start, p.start), cmp.Compare(f.part.end, p.end))
	})
}

// bury lets go of a copy that nobody holds any more.
func (c *copies) bury(f *frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes -= f.cost()
	f.data = nil
	if c.dead++; 2*c.dead > len(c.list) {
		c.list = slices.DeleteFunc(c.list, func(f *frame) bool { return f.refs.Load() == 0 })
		c.dead = 0
	}
}
