package core

import (
	"strings"
	"unicode/utf8"
)

// globScratch is the working memory for matching one segment against a trie of globs.
type globScratch[T any] struct {
	states, next []globState[T]
	leaves       []*T
	marks        indexMarks // stars seen in this segment
	steps        int        // states looked at, for tests of the cost
}

// globState is a place in the trie: so many bytes into the label of a node.
type globState[T any] struct {
	node *globNode[T]
	done int
}

// match returns the leaves of the globs that match segment, each once; the slice is good until the next call. It goes
// through the segment once, with all places where a glob may have got to. A place is reached from one other place only,
// one character earlier, except for stars: a star stays once it is reached, and its mark keeps it from being reached
// again. So there are never more places than nodes whose beginning matches.
func (s *globScratch[T]) match(root *globNode[T], segment string, stars *indexIDs) []*T {
	s.marks.begin(stars)
	s.leaves, s.next = s.leaves[:0], s.next[:0]
	s.enter(root)
	s.states, s.next = s.next, s.states
	for pos := 0; pos < len(segment) && len(s.states) > 0; {
		r, size := utf8.DecodeRuneInString(segment[pos:])
		s.advance(r, segment[pos:pos+size])
		pos += size
	}
	for _, st := range s.states {
		if st.node.leaf != nil && st.done == len(st.node.label) {
			s.leaves = append(s.leaves, st.node.leaf)
		}
	}
	return s.leaves
}

// enter adds a node whose label is matched, and the star behind it.
func (s *globScratch[T]) enter(n *globNode[T]) {
	s.next = append(s.next, globState[T]{n, len(n.label)})
	if n.star == nil || !s.marks.set(n.star.id) {
		return
	}
	if n.star.ends() {
		s.leaves = append(s.leaves, n.star.leaf) // whatever follows
		return
	}
	s.next = append(s.next, globState[T]{n.star, 0})
}

// ends reports whether nothing follows the node, so that it has a leaf.
func (n *globNode[T]) ends() bool {
	return n.any == nil && len(n.literals) == 0 && len(n.classes) == 0
}

// advance replaces the states by those that one more character leads to. text is that character.
func (s *globScratch[T]) advance(r rune, text string) {
	s.next = s.next[:0]
	s.steps += len(s.states)
	for _, st := range s.states {
		n := st.node
		if st.done < len(n.label) {
			s.follow(n, st.done, text)
			continue
		}
		if n.id != 0 {
			s.next = append(s.next, st)
		}
		if n.any != nil {
			s.enter(n.any)
		}
		for _, c := range n.classes {
			if c.class.match(r) {
				s.enter(c)
			}
		}
		if len(n.literals) > 0 {
			if at, found := n.searchLiteral(text); found {
				s.follow(n.literals[at], 0, text)
			}
		}
	}
	s.states, s.next = s.next, s.states
}

// follow goes one character on in the label of n.
func (s *globScratch[T]) follow(n *globNode[T], done int, text string) {
	if !strings.HasPrefix(n.label[done:], text) {
		return
	}
	if done += len(text); done == len(n.label) {
		s.enter(n)
		return
	}
	s.next = append(s.next, globState[T]{n, done})
}
