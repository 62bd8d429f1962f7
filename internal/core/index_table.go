package core

import "maps"

const (
	// Up to tableFew pairs lie in a slice, which takes much less memory than a map and is as fast.
	tableFew = 8
	// A map whose peak was tableShrink times what is left is made anew, since a Go map never shrinks.
	tableShrink = 8
)

// An indexTable is a map that is small when it holds little, also when it once held a lot. T is a pointer type.
type indexTable[K comparable, T any] struct {
	few  []indexPair[K, T] // in use while many is nil
	many map[K]T
	peak int // most pairs many has had
}

type indexPair[K comparable, T any] struct {
	key   K
	value T
}

func (t *indexTable[K, T]) empty() bool { return len(t.few) == 0 && t.many == nil }

// get returns the value of key, or nil.
func (t *indexTable[K, T]) get(key K) T {
	if t.many != nil {
		return t.many[key]
	}
	for i := range t.few {
		if t.few[i].key == key {
			return t.few[i].value
		}
	}
	var none T
	return none
}

// put adds key, which must not be in the table.
func (t *indexTable[K, T]) put(key K, value T) {
	if t.many == nil {
		if len(t.few) < tableFew {
			t.few = append(t.few, indexPair[K, T]{key, value})
			return
		}
		t.many = make(map[K]T, 2*tableFew)
		for _, p := range t.few {
			t.many[p.key] = p.value
		}
		t.few = nil
	}
	t.many[key] = value
	t.peak = max(t.peak, len(t.many))
}

// remove takes out key, which must be in the table.
func (t *indexTable[K, T]) remove(key K) {
	if t.many == nil {
		for i := range t.few {
			if t.few[i].key == key {
				t.few[i] = t.few[len(t.few)-1]
				t.few = cutLast(t.few)
				return
			}
		}
		return
	}
	delete(t.many, key)
	switch n := len(t.many); {
	case n <= tableFew/2:
		t.few = make([]indexPair[K, T], 0, tableFew)
		for k, v := range t.many {
			t.few = append(t.few, indexPair[K, T]{k, v})
		}
		t.many, t.peak = nil, 0
	case n <= t.peak/tableShrink:
		smaller := make(map[K]T, n)
		maps.Copy(smaller, t.many)
		t.many, t.peak = smaller, n
	}
}
