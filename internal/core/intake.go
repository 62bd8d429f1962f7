package core

import (
	"slices"
	"sync"
	"time"
)

// receiver is whoever a publish reaches: a broadcast subscription, or a consumer group through the lanes that match.
type receiver interface {
	// box returns the receiver's intake.
	box() *intake
	// commit queues n records, p.frame.data[start:end]. Without a reservation the overflow policy applies if there
	// is still no room.
	commit(p *publication, run *Run, start, end uint32, n int, reserved bool) fate
}

// fate is what became of records at a receiver.
type fate int

const (
	missed    fate = iota // the receiver has gone: they were never for it
	taken                 // some of them are queued
	discarded             // all of them are counted as dropped, or as lost with a subscription that they have evicted
)

// intake is the publishers' side of a bounded queue: how much room there is, who waits for more, and whether to wait at
// all. Reservations are only made under the lock of the topic's shard, and never outlive it.
type intake struct {
	encoding Encoding
	overflow OverflowPolicy

	capacity      int64 // slots
	capacityBytes int64

	// fill is what the queue holds and what publishers have reserved. It is changed without mu, so that a
	// publisher can reserve at many receivers before it queues at any.
	fill occupancy

	mu        sync.Mutex // also guards everything else of the receiver
	ended     bool
	spent     time.Duration // for how long publishers have waited in vain; none shall wait who would not wait longer, until the queue has drained
	waiters   []chan struct{}
	lastFrom  uint64 // the publication that queued last, and what it queued so far
	lastSlots int64
	lastBytes int64
}

// limits returns how full the queue may become. A patient publisher leaves the last quarter to the others.
func (in *intake) limits(patient bool) (slots, bytes int64) {
	if patient {
		return in.capacity - in.capacity/4, in.capacityBytes - in.capacityBytes/4
	}
	return in.capacity, in.capacityBytes
}

// over reports whether the queue is more than so many quarters full, in messages or in bytes.
func (in *intake) over(quarters int64) bool {
	slots, bytes := in.fill.load()
	free := 4 - quarters
	return slots > in.capacity-in.capacity*free/4 || bytes > in.capacityBytes-in.capacityBytes*free/4
}

// reserve sets room aside for n messages of size bytes, all or nothing.
func (in *intake) reserve(patient bool, n, size int64) bool {
	slots, bytes := in.limits(patient)
	return in.fill.reserve(n, size, slots, bytes)
}

// reserveFirst is reserve for as many of the first n records in data as there is room for now. It returns how many those are.
func (in *intake) reserveFirst(data []byte, n int) (count int, size int64) {
	slots, bytes := in.fill.load()
	count, size = measure(in.encoding, data, min(n, int(max(0, in.capacity-slots))), in.capacityBytes-bytes)
	if count == 0 && slots == 0 {
		count, size = 1, int64(in.encoding.Len(data)) // which an empty queue takes, whatever its size
	}
	if count > 0 && in.reserve(false, int64(count), size) {
		return count, size
	}
	return 0, 0
}

// reserveDropping is reserve with as many calls of drop as it takes to make room. drop reports whether there was anything left to drop.
func (in *intake) reserveDropping(n, size int64, drop func() bool) {
	for !in.reserve(false, n, size) {
		if !drop() {
			// What fills the queue is reserved by others, who wait for the lock. They will find room as well.
			in.fill.add(n, size)
			return
		}
	}
}

// excess returns how many of the n records in data come before those that even an empty queue holds. The last one never does.
func (in *intake) excess(data []byte, n int) (count int, size int64) {
	for n-count > 1 && (n-count > int(in.capacity) || int64(len(data))-size > in.capacityBytes) {
		size += int64(in.encoding.Len(data[size:]))
		count++
	}
	return count, size
}

// unreserve gives a reservation back.
func (in *intake) unreserve(n, size int64) {
	slots, bytes := in.fill.remove(n, size)
	in.mu.Lock()
	in.relieveLocked(slots, bytes)
	in.mu.Unlock()
}

// takenLocked tells that n messages of size bytes have left the queue, and how full it is now.
func (in *intake) takenLocked(n, size int64) (slots, bytes int64) {
	slots, bytes = in.fill.remove(n, size)
	if len(in.waiters) > 0 || in.spent > 0 {
		in.relieveLocked(slots, bytes)
	}
	return slots, bytes
}

// relieveLocked lets waiting publishers go on once the queue is no more than half full.
func (in *intake) relieveLocked(slots, bytes int64) {
	if slots <= in.capacity/2 && bytes <= in.capacityBytes/2 {
		in.spent = 0
		in.releaseWaitersLocked()
	}
}

func (in *intake) releaseWaitersLocked() {
	for _, w := range in.waiters {
		close(w)
	}
	in.waiters = nil
}

// noteLocked remembers which publication brought the last n messages of size bytes.
func (in *intake) noteLocked(p *publication, n int, size int64) {
	if in.lastFrom != p.id {
		in.lastFrom, in.lastSlots, in.lastBytes = p.id, 0, 0
	}
	in.lastSlots += int64(n)
	in.lastBytes += size
}

// answer is what a receiver without room for a whole piece says to a publisher.
type answer int

const (
	takesSome answer = iota // it has room for some, or will be waited for
	overflows               // its overflow policy is to apply
	refuses                 // and that policy is to refuse the publish
)

// room answers for a reservation of n records that failed: how many of them would fit now, or that there is no reason
// to wait.
func (in *intake) room(p *publication, data []byte, n int) (k int, a answer) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended {
		return n, overflows
	}
	waits := in.waitsLocked(p)
	if !waits && in.overflow != OverflowReject {
		in.spendLocked(p)
		return n, overflows
	}
	slots, bytes := in.limits(waits && p.patience > 0)
	used, usedBytes := in.fill.load()
	if free := min(int64(n), slots-used); free > 0 {
		k, _ = measure(in.encoding, data, int(free), bytes-usedBytes)
		if k == 0 && used == 0 {
			k = 1
		}
	}
	if k == 0 && !waits {
		return 0, refuses
	}
	if k == 0 {
		p.need = int64(in.encoding.Len(data))
	}
	return k, takesSome
}

// waitsLocked reports whether p may be held back for this receiver: if it has more patience than has run out, here or for the same messages elsewhere,
// or if what fills the queue is p's own batch, at a receiver that was keeping up before it.
func (in *intake) waitsLocked(p *publication) bool {
	if p.patience > 0 {
		return p.patience > max(in.spent, p.waited) && !slices.Contains(p.gaveUp, in)
	}
	if in.overflow != OverflowEvict || p.grace <= 0 {
		return false
	}
	others, otherBytes := in.fill.load()
	if in.lastFrom == p.id {
		others -= in.lastSlots
		otherBytes -= in.lastBytes
	}
	return others <= in.capacity/4 && otherBytes <= in.capacityBytes/4
}

// awaitRoom returns a channel that is closed when the queue is half empty or the receiver has ended; nil: there is
// room already.
func (in *intake) awaitRoom(p *publication) chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ended || in.hasRoom(p) {
		return nil
	}
	w := make(chan struct{})
	in.waiters = append(in.waiters, w)
	return w
}

// endWait takes back a channel of awaitRoom, on which p has waited. When that was in vain, p's patience with this receiver is spent; and
// where the policy is not to refuse, nobody is to wait as long again until the queue has drained: a frozen receiver costs a publisher max_wait once, not
// once a frame.
func (in *intake) endWait(p *publication, w chan struct{}) {
	in.mu.Lock()
	defer in.mu.Unlock()
	i := slices.Index(in.waiters, w)
	if i < 0 {
		return
	}
	in.waiters = slices.Delete(in.waiters, i, i+1)
	if p.patience > 0 && !in.hasRoom(p) {
		p.gaveUp = append(p.gaveUp, in)
		in.spendLocked(p)
	}
}

// spendLocked notes that p has waited as long as it has and there is still no room.
func (in *intake) spendLocked(p *publication) {
	if in.overflow != OverflowReject {
		in.spent = max(in.spent, p.waited)
	}
}

// hasRoom reports whether the message that p waits with would fit.
func (in *intake) hasRoom(p *publication) bool {
	slots, bytes := in.limits(p.patience > 0)
	used, usedBytes := in.fill.load()
	return used == 0 || used < slots && usedBytes+p.need <= bytes
}
