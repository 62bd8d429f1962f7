package core

// An indexNode stands for the segments a pattern began with. Patterns that begin alike share nodes.
type indexNode[V comparable] struct {
	literals   indexTable[string, *indexNode[V]] // next segment a literal
	any        *indexNode[V]                     // next segment *
	doubleStar *indexNode[V]                     // next segment **; it has none itself
	globs      *globNode[indexNode[V]]           // next segment a glob
	here       indexBucket[V]                    // patterns that end here
	gap        gap                               // of a ** node
}

// add enters the entry's alternative into the bucket at the end of segments, making the nodes that lead there as needed.
func (n *indexNode[V]) add(ix *index[V], segments []patternSegment, e *indexEntry[V], alternative int) {
	var last *indexNode[V] // the last ** on the way
	distance := 0
	for i := range segments {
		s := &segments[i]
		child := n.child(s)
		if child == nil {
			child = &indexNode[V]{}
			n.attach(ix, s, child, last)
		}
		n = child
		distance++
		if s.kind == segmentDoubleStar {
			last, distance = n, 0
		}
	}
	n.here.add(e, alternative)
	if last != nil && last != n {
		last.gap.addEnd(distance)
	}
}

// remove takes the entry's alternative out of the bucket at the end of segments, and with it the nodes that lead nowhere
// then. last is the last ** on the way so far, or nil.
func (n *indexNode[V]) remove(ix *index[V], segments []patternSegment, e *indexEntry[V], alternative int, last *indexNode[V]) {
	if len(segments) == 0 {
		n.here.remove(e, alternative)
		if last != nil && last != n {
			last.gap.removeEnd()
		}
		return
	}
	s := &segments[0]
	child, childLast := n.child(s), last
	if s.kind == segmentDoubleStar {
		childLast = child
	}
	child.remove(ix, segments[1:], e, alternative, childLast)
	if child.empty() {
		n.detach(ix, s, last)
	}
}

func (n *indexNode[V]) empty() bool {
	return n.here.empty() && n.any == nil && n.doubleStar == nil && n.globs == nil && n.literals.empty()
}

func (n *indexNode[V]) child(s *patternSegment) *indexNode[V] {
	switch s.kind {
	case segmentAny:
		return n.any
	case segmentDoubleStar:
		return n.doubleStar
	case segmentGlob:
		if n.globs == nil {
			return nil
		}
		return n.globs.find(s.glob)
	}
	return n.literals.get(s.text)
}

func (n *indexNode[V]) attach(ix *index[V], s *patternSegment, child, last *indexNode[V]) {
	switch s.kind {
	case segmentAny:
		n.any = child
	case segmentDoubleStar:
		n.doubleStar = child
		ix.ids.take(&child.gap.id)
		if last != nil {
			last.gap.next++
		}
	case segmentGlob:
		if n.globs == nil {
			n.globs = &globNode[indexNode[V]]{}
		}
		n.globs.add(&ix.starIDs, s.glob, child)
	case segmentLiteral:
		n.literals.put(s.text, child)
	}
}

func (n *indexNode[V]) detach(ix *index[V], s *patternSegment, last *indexNode[V]) {
	switch s.kind {
	case segmentAny:
		n.any = nil
	case segmentDoubleStar:
		ix.ids.release(&n.doubleStar.gap.id)
		n.doubleStar = nil
		if last != nil {
			last.gap.next--
		}
	case segmentGlob:
		n.globs.remove(&ix.starIDs, s.glob, nil)
		if n.globs.empty() {
			n.globs = nil
		}
	case segmentLiteral:
		n.literals.remove(s.text)
	}
}
