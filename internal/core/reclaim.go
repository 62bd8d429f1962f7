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

// admit accounts for a batch and returns it as a frame; nil: there is no room, and nobody to need it.
func (b *Broker) admit(ctx context.Context, batch *Batch) (*frame, error) {
	if f := newFrame(&b.memory, batch.Data); f != nil {
		return f, nil
	}
	if !b.anyHeard(batch.Runs) {
		return nil, nil
	}
	if err := b.makeRoom(ctx, int64(len(batch.Data))+frameOverhead, batch.MaxWait); err != nil {
		return nil, err
	}
	return adoptFrame(&b.memory, batch.Data), nil
}

// anyHeard reports whether a run that is not refused already has a receiver.
func (b *Broker) anyHeard(runs []Run) bool {
	return slices.ContainsFunc(runs, func(r Run) bool { return r.Err == nil && b.router.heard(r.Topic) })
}

// makeRoom accounts for size bytes for which there was no room.
func (b *Broker) makeRoom(ctx context.Context, size int64, patience time.Duration) error {
	if size > b.memory.limit {
		return ErrMemory
	}
	if b.compact() && b.memory.acquire(size) {
		return nil
	}
	if patience > 0 {
		if ok, err := b.awaitMemory(ctx, size, patience); ok || err != nil {
			return err
		}
	}
	if b.reclaim(size, b.memory.limit) {
		return nil
	}
	return ErrMemory
}

// compact exchanges what queues and lanes hold of the frame that came last, and what members have in flight, for copies, where it is less than half of the frame
// that it keeps: a worker may take long, and a small message is not to hold a large frame for as long. It does so only when memory is full, since most are taken or
// acknowledged in a moment, and not again soon after it has found nothing. It reports whether it has found anything.
func (b *Broker) compact() bool {
	b.reclaimMu.Lock()
	defer b.reclaimMu.Unlock()
	now := b.clock.Now()
	if now.Sub(b.compacted) < reclaimPause {
		return false
	}
	found := false
	for _, c := range b.consumers() {
		found = c.compact() || found
	}
	for _, g := range b.allGroups() {
		found = g.compact() || found
	}
	if !found {
		b.compacted = now
	}
	return found
}

func (s *Subscription) compact() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.len > 0 && s.queue.compactBack()
}

// compact does so in the lanes, those without members included.
func (g *group) compact() (found bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.lanes {
		found = l.fresh.len > 0 && l.compactBack() || found
	}
	return found
}

func (m *Member) compact() (found bool) {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	at := func(i int) *extent { return &m.flights[i].extent }
	for n := 0; n < len(m.flights); {
		f := m.flights[n].frame
		for n < len(m.flights) && m.flights[n].frame == f {
			n++
		}
		found = compactLast(n, at) || found
	}
	return found
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
	room  int64 // of the queue, which nobody shares
	idle  time.Duration
}

// weight is by what holders are compared: a long queue that was taken from just now weighs less than a shorter one that nobody has
// touched for long.
func (h *holder) weight() float64 { return float64(h.bytes) * h.idle.Seconds() }

// reclaim accounts for size bytes within limit after it has evicted whom it must for that. False: no eviction would make room.
func (b *Broker) reclaim(size, limit int64) bool {
	b.reclaimMu.Lock()
	defer b.reclaimMu.Unlock()
	if b.memory.acquireWithin(size, limit) {
		return true // somebody else has been here
	}
	now := b.clock.Now()
	if now.Before(b.reclaims) {
		return false
	}
	for _, s := range victims(b.holders(now), b.memory.used.Load()+size-limit) {
		if b.memory.acquireWithin(size, limit) {
			return true
		}
		s.shed()
		b.forgetIfEnded(s)
	}
	if b.memory.acquireWithin(size, limit) {
		return true
	}
	took := b.clock.Now().Sub(now)
	b.reclaims = now.Add(took + max(reclaimPause, 4*took))
	return false
}

// holders returns the subscriptions that hold what they do not take, the one with the greatest weight first.
func (b *Broker) holders(now time.Time) (all []holder) {
	for _, c := range b.consumers() {
		s, ok := c.(*Subscription)
		if !ok {
			continue
		}
		if h := s.holding(now); h.bytes > 0 && h.idle >= idleHolder {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b holder) int { return cmp.Compare(b.weight(), a.weight()) })
	return all
}

// holding returns what the subscription holds. It is an estimate: what several of them hold counts for each.
func (s *Subscription) holding(now time.Time) holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.queue.len == 0 {
		return holder{}
	}
	_, bytes := s.fill.load()
	room := s.queue.charged
	return holder{s, bytes + room + int64(s.queue.len)*frameOverhead, room, now.Sub(s.taken)}
}

// victims returns the first of holders whose end would free so many bytes, but for those that would add nothing to that; nobody: even the end of all
// would not. A frame is free when nobody else holds it, and counts once. What a subscription is being sent goes with it, if not at once.
func victims(holders []holder, need int64) []*Subscription {
	for n := 1; ; n *= 2 {
		n = min(n, len(holders))
		for _, h := range holders[:n] {
			h.sub.eachFrame(func(f *frame, _ int32) bool { f.claims = 0; return true })
		}
		left := need
		for i, h := range holders[:n] {
			left -= h.room
			h.sub.eachFrame(func(f *frame, holds int32) bool {
				refs, was := f.refs.Load(), f.claims
				f.claims += holds
				if was < refs && f.claims >= refs {
					left -= f.cost()
				}
				return left > 0
			})
			if left <= 0 {
				return helpful(holders[:i+1])
			}
		}
		if n == len(holders) {
			return nil
		}
	}
}

// helpful returns those of holders whose end is needed for the end of all of them to free what it does.
func helpful(holders []holder) (chosen []*Subscription) {
	for _, h := range holders {
		helps := h.room > 0
		h.sub.eachFrame(func(f *frame, _ int32) bool {
			helps = helps || f.claims >= f.refs.Load()
			return !helps
		})
		if helps {
			chosen = append(chosen, h.sub)
		}
	}
	return chosen
}

// eachFrame calls f with the frame of each entry of the queue, and how many references go with that, until it returns false.
func (s *Subscription) eachFrame(f func(f *frame, holds int32) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.queue.len {
		e, holds := s.queue.at(i), int32(1)
		if i == 0 {
			holds += s.queue.lent(e.frame)
		}
		if !f(e.frame, holds) {
			return
		}
	}
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
