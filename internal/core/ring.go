package core

// ring is a double-ended list that grows as needed and lets go of its room when it runs empty. The zero value is empty.
// Not safe for concurrent use.
type ring[T any] struct {
	slots []T // length is zero or a power of two
	head  int
	len   int
}

func (r *ring[T]) at(i int) *T { return &r.slots[(r.head+i)&(len(r.slots)-1)] }

func (r *ring[T]) front() *T { return r.at(0) }

func (r *ring[T]) back() *T { return r.at(r.len - 1) }

func (r *ring[T]) pushBack(v T) {
	r.grow()
	r.len++
	*r.back() = v
}

// insert puts v before the i-th element. It moves those on the shorter side of it.
func (r *ring[T]) insert(i int, v T) {
	if i < r.len/2 {
		r.grow()
		r.head = (r.head - 1) & (len(r.slots) - 1)
		r.len++
		for j := range i {
			*r.at(j) = *r.at(j + 1)
		}
		*r.at(i) = v
		return
	}
	r.pushBack(v)
	for j := r.len - 1; j > i; j-- {
		*r.at(j), *r.at(j - 1) = *r.at(j - 1), *r.at(j)
	}
}

func (r *ring[T]) popFront() T {
	var zero T
	v := *r.front()
	*r.front() = zero
	r.head = (r.head + 1) & (len(r.slots) - 1)
	r.len--
	r.shrink()
	return v
}

func (r *ring[T]) popBack() T {
	var zero T
	v := *r.back()
	*r.back() = zero
	r.len--
	r.shrink()
	return v
}

// remove takes out the i-th element. It moves those on the shorter side of it.
func (r *ring[T]) remove(i int) T {
	v := *r.at(i)
	if i < r.len/2 {
		for ; i > 0; i-- {
			*r.at(i) = *r.at(i - 1)
		}
		*r.front() = v
		return r.popFront()
	}
	for ; i < r.len-1; i++ {
		*r.at(i) = *r.at(i + 1)
	}
	*r.back() = v
	return r.popBack()
}

// shrink lets go of the room when the ring is empty.
func (r *ring[T]) shrink() {
	if r.len == 0 && len(r.slots) > 64 {
		r.slots, r.head = nil, 0
	}
}

func (r *ring[T]) grow() {
	if r.len < len(r.slots) {
		return
	}
	slots := make([]T, max(4, 2*len(r.slots)))
	for i := range r.len {
		slots[i] = *r.at(i)
	}
	r.slots, r.head = slots, 0
}
