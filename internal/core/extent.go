package core

// extent is a part of a frame that is held: whole records, frame.data[start:end]. It owns one reference to the frame.
type extent struct {
	frame      *frame
	start, end uint32
}

func (e *extent) size() int64 { return int64(e.end - e.start) }

func (e *extent) data() []byte { return e.frame.data[e.start:e.end] }

// compact exchanges the frame for a copy of the part, and reports whether it has: there may be no room for one.
func (e *extent) compact() bool {
	c := e.frame.copyOf(e.start, e.end)
	if c == nil {
		return false
	}
	e.frame.release()
	e.frame, e.start, e.end = c, 0, e.end-e.start
	return true
}

// compactLast exchanges the frame that the last of n extents hold, if it is large and they hold little of it together, for copies, and reports whether
// it has. What is taken promptly never gets there: it happens to what is overtaken by another frame, or is still there when memory is full.
func compactLast(n int, at func(i int) *extent) (found bool) {
	f := at(n - 1).frame
	size, i := int64(0), n
	for ; i > 0 && at(i-1).frame == f; i-- {
		size += at(i - 1).size()
		if !f.sparse(size, n-i+1) {
			return false
		}
	}
	for ; i < n; i++ {
		found = at(i).compact() || found
	}
	return found
}
