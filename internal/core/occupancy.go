package core

import "sync/atomic"

// occupancy is how full a queue is, in messages and bytes, reservations included. Both live in one word, so that a
// reservation is made or refused in one step and no half-made one is ever seen. Safe for concurrent use.
type occupancy struct{ word atomic.Uint64 }

// occupancyBytes is how many bits the bytes take. The limits of Options leave room to spare on both sides.
const occupancyBytes = 36

func pack(messages, bytes int64) uint64 { return uint64(messages)<<occupancyBytes + uint64(bytes) }

func unpack(word uint64) (messages, bytes int64) {
	return int64(word >> occupancyBytes), int64(word & (1<<occupancyBytes - 1))
}

func (o *occupancy) load() (messages, bytes int64) { return unpack(o.word.Load()) }

// reserve adds n messages of size bytes unless that would exceed a limit. An empty queue has room for any one message.
func (o *occupancy) reserve(n, size, maxMessages, maxBytes int64) bool {
	for {
		word := o.word.Load()
		messages, bytes := unpack(word)
		fits := messages+n <= maxMessages && bytes+size <= maxBytes
		if !fits && (messages > 0 || n > 1) {
			return false
		}
		if o.word.CompareAndSwap(word, word+pack(n, size)) {
			return true
		}
	}
}

// add adds n messages of size bytes whatever the limits say.
func (o *occupancy) add(n, size int64) { o.word.Add(pack(n, size)) }

// remove takes n messages of size bytes off and returns what is left.
func (o *occupancy) remove(n, size int64) (messages, bytes int64) {
	return unpack(o.word.Add(-pack(n, size)))
}
