package core

import (
	"time"
	"unsafe"
)

// entry is a piece of a frame waiting in a queue: n records in frame.data[start:end]. It owns one reference.
type entry struct {
	frame      *frame
	start, end uint32
	n          uint32
	before     uint32 // messages dropped by policy just before this entry
}

func (e *entry) size() int64 { return int64(e.end - e.start) }

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
	q.pushBack(entry{frame: f, start: start, end: end, n: n, before: before})
	return true
}

// settleRoom gives back what was accounted for the room of a queue that has let go of it.
func (q *queue) settleRoom(m *memory) {
	if q.charged > 0 && q.slots == nil {
		m.free(q.charged)
		q.charged = 0
	}
}

// compactBack exchanges the frame that came last, if it is large and little of it is held here, for copies of that. A queue that is read promptly
// never gets there: it happens to what is overtaken by another frame, or is still there when memory is full.
func (q *queue) compactBack() (found bool) {
	f := q.back().frame
	size, i := int64(0), q.len
	for ; i > 0 && q.at(i-1).frame == f; i-- {
		size += q.at(i - 1).size()
		if !f.sparse(size, q.len-i+1) {
			return false
		}
	}
	for ; i < q.len; i++ {
		found = q.at(i).compact() || found
	}
	return found
}

func (e *entry) compact() bool {
	c := e.frame.copyOf(e.start, e.end)
	if c == nil {
		return false
	}
	e.frame.release()
	e.frame, e.start, e.end = c, 0, e.end-e.start
	return true
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
