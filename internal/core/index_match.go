package core

import "strings"

// indexScratch is the working memory of one lookup. It goes back to a pool as it is, but for the values found: the nodes
// it still refers to are emptied when they are removed, so nothing of weight is kept alive.
type indexScratch[V comparable] struct {
	ix       *index[V]
	topic    string
	segments []string
	found    []V
	gaps     []indexGap[V] // ** nodes that were reached and are still to be followed
	missing  int32         // next gaps that the one being followed has not reached yet
	marks    indexMarks    // ** nodes and values seen
	globs    globScratch[indexNode[V]]
	steps    int // nodes looked at, for tests of the cost
}

// indexGap is a ** node with the number of segments matched before it.
type indexGap[V comparable] struct {
	node *indexNode[V]
	at   int
}

// match appends the values to dst. It looks at every node that can be reached, and at each ** node once: from where it is
// reached first.
func (s *indexScratch[V]) match(topic string, dst []V) []V {
	s.topic, s.found = topic, dst
	s.steps, s.globs.steps = 0, 0
	s.marks.begin(&s.ix.ids)
	if b := s.ix.literals.get(topic); b != nil {
		s.collect(b)
	}
	if root := s.ix.tree(ownTopic(topic)); !root.empty() {
		s.split()
		s.enter(root, 0)
		for len(s.gaps) > 0 {
			g := s.gaps[len(s.gaps)-1]
			s.gaps = s.gaps[:len(s.gaps)-1]
			s.follow(g.node, g.at)
		}
	}
	dst, s.found = s.found, nil
	return dst
}

func (s *indexScratch[V]) split() {
	s.segments = s.segments[:0]
	for rest, more := s.topic, true; more; {
		var segment string
		segment, rest, more = strings.Cut(rest, ".")
		s.segments = append(s.segments, segment)
	}
}

// enter goes on from a node that the first at segments lead to.
func (s *indexScratch[V]) enter(n *indexNode[V], at int) {
	if d := n.doubleStar; d != nil && s.marks.set(d.gap.id) {
		s.gaps = append(s.gaps, indexGap[V]{d, at})
		s.missing--
	}
	if at == len(s.segments) {
		s.collect(&n.here)
		return
	}
	s.advance(n, at)
}

// advance enters the nodes that one more segment leads to.
func (s *indexScratch[V]) advance(n *indexNode[V], at int) {
	s.steps++
	segment := s.segments[at]
	if child := n.literals.get(segment); child != nil {
		s.enter(child, at+1)
	}
	if n.any != nil {
		s.enter(n.any, at+1)
	}
	if n.globs != nil {
		base := len(s.globs.leaves)
		s.globs.match(n.globs, segment, &s.ix.starIDs)
		for i, end := base, len(s.globs.leaves); i < end; i++ {
			s.enter(s.globs.leaves[i], at+1)
		}
		s.globs.leaves = s.globs.leaves[:base]
	}
}

// follow goes on from a ** node behind at segments or more.
func (s *indexScratch[V]) follow(n *indexNode[V], at int) {
	s.collect(&n.here)
	s.missing = n.gap.next
	for ; at < len(s.segments); at++ {
		if s.missing == 0 {
			if n.gap.ends == 0 {
				return
			}
			at = max(at, len(s.segments)-int(n.gap.reach))
		}
		s.advance(n, at)
	}
}

// collect adds the values of a bucket that were not found before and that their exclusions leave.
func (s *indexScratch[V]) collect(b *indexBucket[V]) {
	for i := range b.items {
		e := b.items[i].entry
		if e.id != 0 && !s.marks.set(e.id) {
			continue
		}
		if len(e.set.excludes) > 0 && e.set.excluded(s.topic) {
			continue
		}
		s.found = append(s.found, e.value)
	}
}
