package core

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// A globClass is a set of characters, as [a-z] or [!0-9] spell it. It does not change once made.
type globClass struct {
	key    string      // the same for every spelling of the same ranges
	ascii  [2]uint64   // which ASCII characters belong to the class
	negate bool        // of the others, those belong to it that are not in wide
	wide   []runeRange // what the ranges name beyond ASCII, sorted and apart
}

type runeRange struct{ first, last rune }

// newGlobClass makes a class of the characters in ranges, of which there is at least one, or of all others. It sorts ranges.
func newGlobClass(negate bool, ranges []runeRange) *globClass {
	ranges = joinRanges(ranges)
	c := &globClass{negate: negate}
	var key []byte
	if negate {
		key = append(key, '!')
		c.ascii = [2]uint64{^uint64(0), ^uint64(0)}
	}
	wide := 0 // how many ranges end before those beyond ASCII
	for _, r := range ranges {
		key = utf8.AppendRune(utf8.AppendRune(key, r.first), r.last)
		for a := r.first; a <= r.last && a < utf8.RuneSelf; a++ {
			c.ascii[a/64] ^= 1 << (a % 64)
		}
		if r.last < utf8.RuneSelf {
			wide++
		}
	}
	c.key = string(key)
	if wide < len(ranges) {
		c.wide = slices.Clone(ranges[wide:])
	}
	return c
}

// joinRanges sorts ranges and makes one of those that overlap or touch.
func joinRanges(ranges []runeRange) []runeRange {
	slices.SortFunc(ranges, func(a, b runeRange) int { return cmp.Compare(a.first, b.first) })
	joined := ranges[:1]
	for _, r := range ranges[1:] {
		if end := &joined[len(joined)-1]; r.first <= end.last+1 {
			end.last = max(end.last, r.last)
		} else {
			joined = append(joined, r)
		}
	}
	return joined
}

func (c *globClass) match(r rune) bool {
	if r < utf8.RuneSelf {
		return c.ascii[r/64]>>(r%64)&1 == 1
	}
	_, found := slices.BinarySearchFunc(c.wide, r, func(in runeRange, r rune) int {
		switch {
		case in.last < r:
			return -1
		case in.first > r:
			return 1
		}
		return 0
	})
	return found != c.negate
}
