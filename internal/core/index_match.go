package core

import "strings"

// indexScratch is the working memory of one lookup. It goes back to a pool as it is: nodes it still refers to have been
// emptied when they were removed, so nothing of weight is kept alive.
type indexScratch[V comparable] struct {
	nodes, next []*indexNode[V]
	marks       indexMarks // ** nodes and values seen in this lookup
	globs       globScratch[indexNode[V]]
	steps       int // nodes looked at, for tests of the cost
}

func (s *indexScratch[V]) match(ix *index[V], topic string, dst []V) []V {
	s.steps, s.globs.steps = 0, 0
	s.marks.begin(&ix.ids)
	if b := ix.literals.get(topic); b != nil {
		dst = s.collect(b, topic, dst)
	}
	root := ix.tree(systemTopic(topic))
	if root.empty() {
		return dst
	}
	s.walk(ix, root, topic)
	for _, n := range s.nodes {
		dst = s.collect(&n.here, topic, dst)
	}
	return dst
}

// walk leaves in s.nodes every node whose segments match the whole topic, each once. An ordinary node is entered only
// from its parent, by one way, after the same number of segments. A ** node stays once it is entered, and its mark keeps
// it from being entered again.
func (s *indexScratch[V]) walk(ix *index[V], root *indexNode[V], topic string) {
	s.next = s.next[:0]
	s.enter(root)
	s.nodes, s.next = s.next, s.nodes
	for rest, more := topic, true; more && len(s.nodes) > 0; {
		var segment string
		segment, rest, more = strings.Cut(rest, ".")
		s.advance(ix, segment)
	}
}

func (s *indexScratch[V]) enter(n *indexNode[V]) {
	s.next = append(s.next, n)
	if d := n.doubleStar; d != nil && s.marks.set(d.id) {
		s.next = append(s.next, d)
	}
}

// advance replaces the nodes by those that one more segment leads to.
func (s *indexScratch[V]) advance(ix *index[V], segment string) {
	s.next = s.next[:0]
	s.steps += len(s.nodes)
	for _, n := range s.nodes {
		if n.id != 0 {
			s.next = append(s.next, n)
		}
		if child := n.literals.get(segment); child != nil {
			s.enter(child)
		}
		if n.any != nil {
			s.enter(n.any)
		}
		if n.globs != nil {
			for _, child := range s.globs.match(n.globs, segment, &ix.starIDs) {
				s.enter(child)
			}
		}
	}
	s.nodes, s.next = s.next, s.nodes
}

// collect appends the values of a bucket that were not found before and that their exclusions leave.
func (s *indexScratch[V]) collect(b *indexBucket[V], topic string, dst []V) []V {
	for i := range b.items {
		e := b.items[i].entry
		if e.id != 0 && !s.marks.set(e.id) {
			continue
		}
		if len(e.set.excludes) > 0 && e.set.excluded(topic) {
			continue
		}
		dst = append(dst, e.value)
	}
	return dst
}
