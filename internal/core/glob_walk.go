package core

import (
	"strings"
	"unicode/utf8"
)

// globScratch is the working memory for matching segments against tries of globs.
type globScratch[T any] struct {
	segment string
	leaves  []*T
	gaps    []globGap[T] // stars that were reached and are still to be followed
	missing int32        // next gaps that the one being followed has not reached yet
	marks   indexMarks   // stars seen in this segment
	steps   int          // nodes looked at, for tests of the cost
}

// globGap is a star with the number of bytes matched before it.
type globGap[T any] struct {
	node *globNode[T]
	at   int
}

// match appends to s.leaves the leaves of the globs that match the segment, each once. It looks at each star once, from
// where it is reached first. stars are all there are in tries that use the scratch.
func (s *globScratch[T]) match(root *globNode[T], segment string, stars *indexIDs) {
	s.segment = segment
	s.marks.begin(stars)
	s.enter(root, 0)
	for len(s.gaps) > 0 {
		g := s.gaps[len(s.gaps)-1]
		s.gaps = s.gaps[:len(s.gaps)-1]
		s.follow(g.node, g.at)
	}
}

// enter goes on from a node that the first at bytes lead to.
func (s *globScratch[T]) enter(n *globNode[T], at int) {
	if n.star != nil && s.marks.set(n.star.gap.id) {
		s.gaps = append(s.gaps, globGap[T]{n.star, at})
		s.missing--
	}
	if at < len(s.segment) {
		s.advance(n, at)
	} else if n.leaf != nil {
		s.leaves = append(s.leaves, n.leaf)
	}
}

// advance enters the nodes that one more token leads to.
func (s *globScratch[T]) advance(n *globNode[T], at int) {
	s.steps++
	rest := s.segment[at:]
	r, size := utf8.DecodeRuneInString(rest)
	if n.any != nil {
		s.enter(n.any, at+size)
	}
	for _, c := range n.classes {
		if c.class.match(r) {
			s.enter(c, at+size)
		}
	}
	if i, found := n.searchLiteral(r); found {
		if c := n.literals[i].node; strings.HasPrefix(rest, c.label) {
			s.enter(c, at+len(c.label))
		}
	}
}

// follow goes on from a star behind at bytes or more.
func (s *globScratch[T]) follow(n *globNode[T], at int) {
	if n.leaf != nil {
		s.leaves = append(s.leaves, n.leaf)
	}
	s.missing = n.gap.next
	for at < len(s.segment) {
		if s.missing == 0 {
			if n.gap.ends == 0 {
				return
			}
			at = s.near(at, int(n.gap.reach))
		}
		if only := n.onlyLiteral(); only != "" {
			skip := strings.Index(s.segment[at:], only)
			if skip < 0 {
				return
			}
			at += skip
		}
		s.advance(n, at)
		_, size := utf8.DecodeRuneInString(s.segment[at:])
		at += size
	}
}

// near returns the first place from at on that is not more than reach bytes from the end.
func (s *globScratch[T]) near(at, reach int) int {
	if far := len(s.segment) - reach; far > at {
		at = far
		for at < len(s.segment) && !utf8.RuneStart(s.segment[at]) {
			at++
		}
	}
	return at
}

// onlyLiteral returns the label of the only node behind n, if it is a literal; else "".
func (n *globNode[T]) onlyLiteral() string {
	if len(n.literals) != 1 || n.any != nil || len(n.classes) > 0 {
		return ""
	}
	return n.literals[0].node.label
}
