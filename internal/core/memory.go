package core

import (
	"slices"
	"sync"
	"sync/atomic"
)

// memory counts the message bytes the broker holds, shared bytes once. Safe for concurrent use.
type memory struct {
	limit int64
	used  atomic.Int64

	waiting atomic.Int32 // publishers that wait for something to be freed
	mu      sync.Mutex
	waiters []chan struct{}
}

// acquire accounts for size bytes, or refuses when that would exceed the limit.
func (m *memory) acquire(size int64) bool { return m.acquireWithin(size, m.limit) }

// acquireWithin is acquire with another limit. What is refused is not accounted for even for a moment: others would be refused for it, wait for it, or
// be evicted.
func (m *memory) acquireWithin(size, limit int64) bool {
	for {
		used := m.used.Load()
		if used+size > limit {
			return false
		}
		if m.used.CompareAndSwap(used, used+size) {
			return true
		}
	}
}

// take accounts for size bytes that are there already, or for which there was room, whatever the limit.
func (m *memory) take(size int64) { m.used.Add(size) }

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
