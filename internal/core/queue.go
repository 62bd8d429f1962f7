package core

import (
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

	// The frame that was taken from last, known by when it came, and how often: more of it may be in the queue while that is being written.
	lentBorn time.Duration
	lent     int32
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

// lend notes whose frame it is that was taken from last.
func (q *queue) lend(frames []*frame) {
	last := frames[len(frames)-1]
	if last.born != q.lentBorn {
		q.lentBorn, q.lent = last.born, 0
	}
	for i := len(frames) - 1; i >= 0 && frames[i] == last; i-- {
		q.lent++
	}
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
