package core

// An indexNode stands for the segments a pattern began with. Patterns that begin alike share nodes.
type indexNode[V comparable] struct {
	literals   indexTable[string, *indexNode[V]] // next segment a literal
	any        *indexNode[V]                     // next segment *
	doubleStar *indexNode[V]                     // next segment **; it has none itself
	globs      *globNode[indexNode[V]]           // next segment a glob
	here       indexBucket[V]                    // patterns that end here
	id         uint32                            // 0: not behind a **
}

// add returns the bucket for patterns of these segments, making the nodes that lead to it as needed.
func (n *indexNode[V]) add(ix *index[V], segments []patternSegment) *indexBucket[V] {
	for i := range segments {
		s := &segments[i]
		child := n.child(s)
		if child == nil {
			child = &indexNode[V]{}
			n.attach(ix, s, child)
		}
		n = child
	}
	return &n.here
}

// remove takes the entry's alternative out of the bucket at the end of segments, and the nodes that leads nowhere then.
func (n *indexNode[V]) remove(ix *index[V], segments []patternSegment, e *indexEntry[V], alternative int) {
	if len(segments) == 0 {
		n.here.remove(e, alternative)
		return
	}
	s := &segments[0]
	child := n.child(s)
	child.remove(ix, segments[1:], e, alternative)
	if child.empty() {
		n.detach(ix, s)
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

func (n *indexNode[V]) attach(ix *index[V], s *patternSegment, child *indexNode[V]) {
	switch s.kind {
	case segmentAny:
		n.any = child
	case segmentDoubleStar:
		n.doubleStar = child
		ix.ids.take(&child.id)
	case segmentGlob:
		if n.globs == nil {
			n.globs = &globNode[indexNode[V]]{}
		}
		n.globs.add(&ix.starIDs, s.glob, child)
	case segmentLiteral:
		n.literals.put(s.text, child)
	}
}

func (n *indexNode[V]) detach(ix *index[V], s *patternSegment) {
	switch s.kind {
	case segmentAny:
		n.any = nil
	case segmentDoubleStar:
		ix.ids.release(&n.doubleStar.id)
		n.doubleStar = nil
	case segmentGlob:
		n.globs.remove(&ix.starIDs, s.glob)
		if n.globs.empty() {
			n.globs = nil
		}
	case segmentLiteral:
		n.literals.remove(s.text)
	}
}
