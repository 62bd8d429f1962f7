package core

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// entry is n records waiting in a queue.
type entry struct {
	extent
	n      uint32
	before uint32 // messages dropped by policy just before this entry
}

// queue is a first-in-first-out list of entries. Not safe for concurrent use. The zero value is an empty queue.
type queue struct {
	ring[entry]
	charged int64 // what its room takes of max_memory

	loan *loan // of the frame at the front; nil: there was none
}

// loan counts the references that deliveries hold, while they are being written, to a frame of which more is in the queue.
type loan struct {
	born time.Duration // when the frame came: it is not to be kept
	out  atomic.Int32
}

const (
	entrySize = int64(unsafe.Sizeof(entry{}))
	// freeEntries is for how many entries any queue has room without its being accounted for. Messages are: this is about many queues that
	// hold the same ones.
	freeEntries = 1024
)

// push appends frame.data[start:end] with n records and takes a reference. Neighbouring records of one frame become
// one entry again, so that a frame of alternating topics costs a wide subscription what a frame of one topic costs. False:
// memory is full, and the queue would have to grow.
func (q *queue) push(f *frame, start, end, n, before uint32) bool {
	if q.len > 0 {
		last := q.back()
		if last.frame == f && last.end == start && before == 0 {
			last.end, last.n = end, last.n+n
			return true
		}
		if last.frame != f {
			q.compactBack()
		}
	}
	if q.len == len(q.slots) && q.len >= freeEntries {
		more := int64(q.len) * entrySize
		if !f.mem.acquire(more) {
			return false
		}
		q.charged += more
	}
	f.retain()
	q.pushBack(entry{extent: extent{f, start, end}, n: n, before: before})
	return true
}

// settleRoom gives back what was accounted for the room of a queue that has let go of it.
func (q *queue) settleRoom(m *memory) {
	if q.charged > 0 && q.slots == nil {
		m.free(q.charged)
		q.charged = 0
	}
}

// compactBack is compactLast for the whole queue.
func (q *queue) compactBack() bool {
	return compactLast(q.len, func(i int) *extent { return &q.at(i).extent })
}

// giveBack notes that a delivery lets go of so many.
func (l *loan) giveBack(n int32) {
	if l != nil {
		l.out.Add(-n)
	}
}

// lend notes what a delivery holds of a frame of which there is more at the front.
func (q *queue) lend(d *Delivery) {
	last := d.frames[len(d.frames)-1]
	if q.len == 0 || q.front().frame != last {
		return
	}
	if q.loan == nil || q.loan.born != last.born {
		q.loan = &loan{born: last.born}
	}
	d.loan = q.loan
	for i := len(d.frames) - 1; i >= 0 && d.frames[i] == last; i-- {
		d.lent++
	}
	d.loan.out.Add(d.lent)
}

// lent returns how many references to a frame, which is that of the front entry, deliveries hold.
func (q *queue) lent(f *frame) int32 {
	if q.loan == nil || q.loan.born != f.born || f.part != nil { // a copy was made after they were lent
		return 0
	}
	return q.loan.out.Load()
}

// pop removes the front entry and hands its reference to the caller.
func (q *queue) pop() entry { return q.popFront() }

// split removes the first n records, size bytes long, of a front entry that holds more than that. The caller gets a
// reference of its own.
func (q *queue) split(n, size uint32) entry {
	f := q.front()
	first := *f
	first.n, first.end = n, f.start+size
	first.frame.retain()
	f.n -= n
	f.start += size
	f.before = 0
	return first
}

// measure walks the records at the start of data and returns how many of them, and how many bytes, stay within n
// records and size bytes.
func measure(enc Encoding, data []byte, n int, size int64) (count int, length int64) {
	for count < n && length < int64(len(data)) {
		l := int64(enc.Len(data[length:]))
		if length+l > size {
			break
		}
		length += l
		count++
	}
	return count, length
}
