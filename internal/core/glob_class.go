package core

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// A globClass is a set of characters, as [a-z] or [!0-9] spell it. It does not change once made.
type globClass struct {
	key    string      // the same for every spelling of the same ranges
	negate bool        // every character but those in the ranges
	ranges []runeRange // sorted, apart
	ascii  [2]uint64   // which ASCII characters belong to the class, negation applied
}

type runeRange struct{ first, last rune }

func newGlobClass(negate bool, ranges []runeRange) *globClass {
	c := &globClass{negate: negate, ranges: joinRanges(ranges)}
	for r := range rune(utf8.RuneSelf) {
		if c.inRanges(r) != negate {
			c.ascii[r/64] |= 1 << (r % 64)
		}
	}
	key := make([]byte, 0, 1+8*len(c.ranges))
	if negate {
		key = append(key, '!')
	}
	for _, r := range c.ranges {
		key = binary.BigEndian.AppendUint32(key, uint32(r.first))
		key = binary.BigEndian.AppendUint32(key, uint32(r.last))
	}
	c.key = string(key)
	return c
}

// joinRanges sorts ranges and makes one of those that overlap or touch.
func joinRanges(ranges []runeRange) []runeRange {
	slices.SortFunc(ranges, func(a, b runeRange) int { return int(a.first - b.first) })
	joined := ranges[:1]
	for _, r := range ranges[1:] {
		if end := &joined[len(joined)-1]; r.first <= end.last+1 {
			end.last = max(end.last, r.last)
		} else {
			joined = append(joined, r)
		}
	}
	return slices.Clip(joined)
}

func (c *globClass) match(r rune) bool {
	if r < utf8.RuneSelf {
		return c.ascii[r/64]>>(r%64)&1 == 1
	}
	return c.inRanges(r) != c.negate
}

func (c *globClass) inRanges(r rune) bool {
	_, found := slices.BinarySearchFunc(c.ranges, r, func(a runeRange, r rune) int {
		switch {
		case a.last < r:
			return -1
		case a.first > r:
			return 1
		}
		return 0
	})
	return found
}
