package bench

import "math/bits"

// tracker knows which messages of one publisher a subscriber has seen. The zero value has seen none.
type tracker struct {
	next uint64   // in order: the sequence number to come
	seen []uint64 // in any order: a bit for each sequence number
}

// inOrder notes a message of a broadcast, whose order is promised, and reports whether it is a new one. One that comes late
// counts as seen before: whoever counts the new ones misses it.
func (t *tracker) inOrder(sequence uint64) (fresh bool) {
	if sequence < t.next {
		return false
	}
	t.next = sequence + 1
	return true
}

// inAnyOrder is inOrder for the member of a group, who sees a part of the messages and some of them again.
func (t *tracker) inAnyOrder(sequence uint64) (fresh bool) {
	word, bit := sequence/64, uint64(1)<<(sequence%64)
	for uint64(len(t.seen)) <= word {
		t.seen = append(t.seen, 0)
	}
	fresh = t.seen[word]&bit == 0
	t.seen[word] |= bit
	return fresh
}

// distinct counts the messages that at least one of the trackers has seen in any order.
func distinct(trackers []tracker) (n int64) {
	longest := 0
	for i := range trackers {
		longest = max(longest, len(trackers[i].seen))
	}
	for word := range longest {
		var union uint64
		for i := range trackers {
			if word < len(trackers[i].seen) {
				union |= trackers[i].seen[word]
			}
		}
		n += int64(bits.OnesCount64(union))
	}
	return n
}
