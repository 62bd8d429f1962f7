package core

// An indexBucket holds the entries one of whose alternatives ends in one place.
type indexBucket[V comparable] struct {
	items []indexItem[V]
}

type indexItem[V comparable] struct {
	entry       *indexEntry[V]
	alternative int32
}

func (b *indexBucket[V]) empty() bool { return len(b.items) == 0 }

func (b *indexBucket[V]) add(e *indexEntry[V], alternative int) {
	e.spots[alternative] = int32(len(b.items))
	b.items = append(b.items, indexItem[V]{e, int32(alternative)})
}

// remove moves the last item into the gap, so that its cost does not depend on how many there are.
func (b *indexBucket[V]) remove(e *indexEntry[V], alternative int) {
	spot, last := e.spots[alternative], len(b.items)-1
	moved := b.items[last]
	b.items[spot] = moved
	moved.entry.spots[moved.alternative] = spot
	b.items = cutLast(b.items)
}

// cutLast shortens s by one and gives memory back when most of it is unused.
func cutLast[T any](s []T) []T {
	last := len(s) - 1
	clear(s[last:])
	switch {
	case last == 0:
		return nil
	case cap(s) >= 16 && last <= cap(s)/4:
		return append(make([]T, 0, 2*last), s[:last]...)
	}
	return s[:last]
}
