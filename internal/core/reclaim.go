package core

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// When memory is full, everybody lets go of large frames of which little is queued or in flight there. A publisher with patience
// waits. Then the broadcast subscriptions that hold what they do not take are evicted, or lose their queues if their policy is to drop,
// until the batch fits; and only where that cannot help is it refused.

// idleHolder is how long a subscription must have taken nothing, though there was something, before it may be evicted for the memory
// it holds. It is what any subscription may take to be busy, see frameGrace.
const idleHolder = frameGrace

// reclaimPause is the least time between two looks at all subscriptions that have found nothing to free.
const reclaimPause = 20 * time.Millisecond

// admit accounts for a batch and returns it as a frame.
func (b *Broker) admit(ctx context.Context, batch *Batch) (*frame, error) {
	if f := newFrame(&b.memory, batch.Data); f != nil {
		return f, nil
	}
	size := int64(len(batch.Data)) + frameOverhead
	if size > b.memory.limit {
		return nil, ErrMemory
	}
	if b.compact() && b.memory.acquire(size) {
		return adoptFrame(&b.memory, batch.Data), nil
	}
	if batch.MaxWait > 0 {
		ok, err := b.awaitMemory(ctx, size, batch.MaxWait)
		if err != nil {
			return nil, err
		}
		if ok {
			return adoptFrame(&b.memory, batch.Data), nil
		}
	}
	if b.reclaim(size) {
		return adoptFrame(&b.memory, batch.Data), nil
	}
	return nil, ErrMemory
}

// compact exchanges what queues hold of the frame that came last, and what members have in flight, for copies, where it is less than half of the frame that it
// keeps: a worker may take long, and a small message is not to hold a large frame for as long. It does so only when memory is full, since most are taken or
// acknowledged in a moment, and not again soon after it has found nothing. It reports whether it has found anything.
func (b *Broker) compact() bool {
	b.reclaimMu.Lock()
	defer b.reclaimMu.Unlock()
	now := b.clock.Now()
	if now.Sub(b.compacted) < reclaimPause {
		return false
	}
	before := b.memory.used.Load()
	for _, c := range b.snapshot() {
		c.compact()
	}
	if b.memory.used.Load() < before {
		return true
	}
	b.compacted = now
	return false
}

func (s *Subscription) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.len > 0 {
		s.queue.compactBack()
	}
}

func (m *Member) compact() {
	m.group.mu.Lock()
	defer m.group.unlock()
	for _, p := range m.flights {
		p.compact()
	}
}

// awaitMemory waits until size bytes are free, for at most patience, and accounts for them.
func (b *Broker) awaitMemory(ctx context.Context, size int64, patience time.Duration) (ok bool, err error) {
	expired := make(chan struct{})
	stop := b.clock.AfterFunc(patience, func() { close(expired) })
	defer stop()
	for {
		freed := b.memory.awaitFree()
		if b.memory.acquire(size) {
			b.memory.endWait(freed)
			return true, nil
		}
		select {
		case <-freed:
		case <-expired:
			b.memory.endWait(freed)
			return false, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-b.draining:
			err = ErrDraining
		}
		b.memory.endWait(freed)
		if err != nil {
			return false, err
		}
	}
}

// holder is a subscription that holds memory.
type holder struct {
	sub   *Subscription
	bytes int64
	idle  time.Duration
}

// weight is by what holders are compared: a long queue that was taken from just now weighs less than a shorter one that nobody has
// touched for long.
func (h *holder) weight() float64 { return float64(h.bytes) * h.idle.Seconds() }

// reclaim accounts for size bytes after it has evicted whom it must for that. False: no eviction would make room.
func (b *Broker) reclaim(size int64) bool {
	b.reclaimMu.Lock()
	defer b.reclaimMu.Unlock()
	if b.memory.acquire(size) {
		return true // somebody else has been here
	}
	now := b.clock.Now()
	if now.Sub(b.reclaimed) < reclaimPause {
		return false
	}
	holders, sum := b.holders(now)
	if b.memory.used.Load()-sum+size <= b.memory.limit {
		for i := range holders {
			s := holders[i].sub
			s.shed()
			b.forgetIfEnded(s)
			if b.memory.acquire(size) {
				return true
			}
		}
	}
	b.reclaimed = now
	return false
}

// holders returns the subscriptions that hold what they do not take, the one with the greatest weight first, and how much they hold. It is an
// estimate: what several of them hold counts for each.
func (b *Broker) holders(now time.Time) (all []holder, sum int64) {
	for _, c := range b.snapshot() {
		s, ok := c.(*Subscription)
		if !ok {
			continue
		}
		if h := s.holding(now); h.bytes > 0 && h.idle >= idleHolder {
			all = append(all, h)
			sum += h.bytes
		}
	}
	slices.SortFunc(all, func(a, b holder) int { return cmp.Compare(b.weight(), a.weight()) })
	return all, sum
}

func (s *Subscription) holding(now time.Time) holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.queue.len == 0 {
		return holder{}
	}
	_, bytes := s.fill.load()
	return holder{s, bytes + s.queue.charged + int64(s.queue.len)*frameOverhead, now.Sub(s.taken)}
}

// shed gives up what the subscription holds: it ends as evicted or, if its policy is to drop, drops its queue.
func (s *Subscription) shed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
	case s.overflow == OverflowEvict:
		s.evictForMemoryLocked(0)
	default:
		for s.queue.len > 0 {
			s.dropEntryLocked(DropMemory, s.queue.pop())
		}
		s.queue.settleRoom(&s.broker.memory)
		s.relieveLocked(s.fill.load())
	}
}
