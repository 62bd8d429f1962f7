package core

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A globNode stands for the tokens a glob began with; the root stands for none. Globs that begin alike share nodes, and
// literal text without a fork is one node. A glob leads to a leaf of type T.
type globNode[T any] struct {
	label    string         // the literal text that leads here; "" behind other tokens
	literals []globEdge[T]  // next a literal, by first character, which no two have in common
	any      *globNode[T]   // next ?
	classes  []*globNode[T] // next a class, by key
	star     *globNode[T]   // next *
	leaf     *T             // a glob ends here; nil: none does
	class    *globClass     // the class that leads here, or nil
	gap      gap            // of a star
}

// globEdge is a literal child with the first character of its label, which saves looking at the others.
type globEdge[T any] struct {
	first rune
	node  *globNode[T]
}

// find returns the leaf of g, or nil.
func (n *globNode[T]) find(g glob) *T {
	for i := range g {
		if g[i].kind == globLiteral {
			n = n.findLiteral(g[i].text)
		} else {
			n = n.next(&g[i])
		}
		if n == nil {
			return nil
		}
	}
	return n.leaf
}

func (n *globNode[T]) findLiteral(text string) *globNode[T] {
	for text != "" {
		at, found := n.searchLiteral(firstRune(text))
		if !found {
			return nil
		}
		n = n.literals[at].node
		if text, found = strings.CutPrefix(text, n.label); !found {
			return nil
		}
	}
	return n
}

// next returns the node behind a token that is no literal, or nil.
func (n *globNode[T]) next(t *globToken) *globNode[T] {
	switch t.kind {
	case globAny:
		return n.any
	case globStar:
		return n.star
	}
	if at, found := n.searchClass(t.class); found {
		return n.classes[at]
	}
	return nil
}

// searchLiteral looks for the literal that begins with first.
func (n *globNode[T]) searchLiteral(first rune) (at int, found bool) {
	return slices.BinarySearchFunc(n.literals, first, func(e globEdge[T], first rune) int {
		return cmp.Compare(e.first, first)
	})
}

func (n *globNode[T]) searchClass(class *globClass) (at int, found bool) {
	return slices.BinarySearchFunc(n.classes, class.key, func(c *globNode[T], key string) int {
		return strings.Compare(c.class.key, key)
	})
}

// add makes leaf the leaf of g, which has none. stars numbers the stars.
func (n *globNode[T]) add(stars *indexIDs, g glob, leaf *T) {
	var last *globNode[T] // the last star on the way
	distance := 0
	for i := range g {
		t := &g[i]
		if t.kind == globLiteral {
			n = n.addLiteral(t.text)
			distance += len(t.text)
			continue
		}
		child := n.next(t)
		if child == nil {
			child = &globNode[T]{class: t.class}
			n.attach(stars, t, child, last)
		}
		n = child
		distance += utf8.UTFMax
		if t.kind == globStar {
			last, distance = n, 0
		}
	}
	n.leaf = leaf
	if last != nil && last != n {
		last.gap.addEnd(distance)
	}
}

func (n *globNode[T]) attach(stars *indexIDs, t *globToken, child, last *globNode[T]) {
	switch t.kind {
	case globAny:
		n.any = child
	case globStar:
		n.star = child
		stars.take(&child.gap.id)
		if last != nil {
			last.gap.next++
		}
	default:
		at, _ := n.searchClass(t.class)
		n.classes = slices.Insert(n.classes, at, child)
	}
}

func (n *globNode[T]) addLiteral(text string) *globNode[T] {
	for text != "" {
		first := firstRune(text)
		at, found := n.searchLiteral(first)
		if !found {
			// A clone, so that the node does not keep the whole pattern alive.
			child := &globNode[T]{label: strings.Clone(text)}
			n.literals = slices.Insert(n.literals, at, globEdge[T]{first, child})
			return child
		}
		child := n.literals[at].node
		if common := commonPrefix(child.label, text); common < len(child.label) {
			child = child.fork(common)
			n.literals[at].node = child
		}
		n, text = child, text[len(child.label):]
	}
	return n
}

// fork returns a new node for the first part of the label of n, with n for the rest behind it.
func (n *globNode[T]) fork(at int) *globNode[T] {
	head, rest := n.label[:at], n.label[at:]
	n.label = rest
	return &globNode[T]{label: head, literals: []globEdge[T]{{firstRune(rest), n}}}
}

// commonPrefix returns the length of what a and b have in common at their beginning, in whole characters.
func commonPrefix(a, b string) int {
	for i, r := range a {
		if size := utf8.RuneLen(r); !strings.HasPrefix(b[i:], a[i:i+size]) {
			return i
		}
	}
	return len(a)
}

// remove takes out g, which has a leaf, and with it the nodes that lead nowhere then. last is the last star on the way so
// far, or nil.
func (n *globNode[T]) remove(stars *indexIDs, g glob, last *globNode[T]) {
	if len(g) == 0 {
		n.leaf = nil
		if last != nil && last != n {
			last.gap.removeEnd()
		}
		return
	}
	t := &g[0]
	if t.kind == globLiteral {
		n.removeLiteral(stars, t.text, g[1:], last)
		return
	}
	child, childLast := n.next(t), last
	if t.kind == globStar {
		childLast = child
	}
	child.remove(stars, g[1:], childLast)
	if child.empty() {
		n.detach(stars, t, last)
	}
}

func (n *globNode[T]) detach(stars *indexIDs, t *globToken, last *globNode[T]) {
	switch t.kind {
	case globAny:
		n.any = nil
	case globStar:
		stars.release(&n.star.gap.id)
		n.star = nil
		if last != nil {
			last.gap.next--
		}
	default:
		at, _ := n.searchClass(t.class)
		n.classes = cutAt(n.classes, at)
	}
}

// removeLiteral removes the glob that goes on with text and then rest.
func (n *globNode[T]) removeLiteral(stars *indexIDs, text string, rest glob, last *globNode[T]) {
	at, _ := n.searchLiteral(firstRune(text))
	child := n.literals[at].node
	if text = text[len(child.label):]; text != "" {
		child.removeLiteral(stars, text, rest, last)
	} else {
		child.remove(stars, rest, last)
	}
	switch {
	case child.empty():
		n.literals = cutAt(n.literals, at)
	case child.passage():
		only := child.literals[0].node
		only.label = child.label + only.label
		n.literals[at].node = only
	}
}

func (n *globNode[T]) empty() bool {
	return n.leaf == nil && n.any == nil && n.star == nil && len(n.classes) == 0 && len(n.literals) == 0
}

// passage reports whether the node only leads on to one literal.
func (n *globNode[T]) passage() bool {
	return n.leaf == nil && n.any == nil && n.star == nil && len(n.classes) == 0 && len(n.literals) == 1
}

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// cutAt takes out one element, keeping the order.
func cutAt[T any](s []T, at int) []T {
	copy(s[at:], s[at+1:])
	return cutLast(s)
}
