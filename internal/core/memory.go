package core

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// frameOverhead is what a held frame costs beside its bytes: its own bookkeeping, the allocator's rounding and the queue
// entry that holds it. Without it a million one-byte messages would look like a megabyte.
const frameOverhead = 128

// memory counts the message bytes the broker holds, shared bytes once. Safe for concurrent use.
type memory struct {
	limit int64
	used  atomic.Int64

	waiting atomic.Int32 // publishers that wait for something to be freed
	mu      sync.Mutex
	waiters []chan struct{}
}

// acquire accounts for size bytes, or refuses when that would exceed the limit.
func (m *memory) acquire(size int64) bool {
	if m.used.Add(size) <= m.limit {
		return true
	}
	m.used.Add(-size)
	return false
}

// free gives bytes back.
func (m *memory) free(size int64) {
	m.used.Add(-size)
	if m.waiting.Load() == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.waiters {
		close(w)
	}
	m.waiters = nil
}

// awaitFree returns a channel that is closed when something has been freed since; endWait must follow.
func (m *memory) awaitFree() chan struct{} {
	w := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiters = append(m.waiters, w)
	m.waiting.Add(1)
	return w
}

// endWait takes awaitFree back.
func (m *memory) endWait(w chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting.Add(-1)
	if i := slices.Index(m.waiters, w); i >= 0 {
		m.waiters = slices.Delete(m.waiters, i, i+1)
	}
}

// tight reports whether more than half of the memory is in use: time to be careful with what is retained.
func (m *memory) tight() bool { return m.used.Load() > m.limit/2 }

// usualPatterns is how much the patterns of a subscription may take without being accounted for.
const usualPatterns = 32 << 10

// unusual is what a set of patterns takes beyond what is usual.
func unusual(p *PatternSet) int64 { return max(0, int64(p.Size())-usualPatterns) }

// chargePatterns accounts for what a set of patterns takes beyond what is usual, or refuses when there is no room for that.
func (b *Broker) chargePatterns(p *PatternSet) bool {
	extra := unusual(p)
	return extra == 0 || b.memory.acquire(extra)
}

// freePatterns takes chargePatterns back.
func (b *Broker) freePatterns(p *PatternSet) {
	if extra := unusual(p); extra > 0 {
		b.memory.free(extra)
	}
}

// frame is a publisher's buffer, shared by every queue that holds records of it. It is never written to after it was
// handed over. Its bytes are accounted for as long as anyone holds a reference.
type frame struct {
	data []byte
	refs atomic.Int32
	mem  *memory
	born time.Duration // when it came, since the broker's start
}

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

// copyOf returns a frame of its own for a part of f, accounted for without asking: the caller is about to release f,
// which is larger.
func (f *frame) copyOf(start, end uint32) *frame {
	data := make([]byte, end-start)
	copy(data, f.data[start:end])
	f.mem.used.Add(int64(len(data)) + frameOverhead)
	c := adoptFrame(f.mem, data)
	c.born = f.born
	return c
}

func (f *frame) retain() { f.refs.Add(1) }

func (f *frame) release() {
	if f.refs.Add(-1) == 0 {
		f.mem.free(int64(len(f.data)) + frameOverhead)
	}
}

// minSparse is the size of frames that are worth a copy of a part.
const minSparse = 4096

// sparse reports whether holding f for the sake of f.data[start:end] wastes more than it keeps.
func (f *frame) sparse(start, end uint32) bool {
	return len(f.data) >= minSparse && int(end-start) < len(f.data)/2
}
