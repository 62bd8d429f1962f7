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
	literals []*globNode[T] // next a literal, by first character, which no two have in common
	any      *globNode[T]   // next ?
	classes  []*globNode[T] // next a class, by key
	star     *globNode[T]   // next *
	leaf     *T             // a glob ends here; nil: none does
	class    *globClass     // the class that leads here, or nil
	id       uint32         // 0: not behind a star
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
		at, found := n.searchLiteral(text)
		if !found {
			return nil
		}
		n = n.literals[at]
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

func (n *globNode[T]) searchLiteral(text string) (at int, found bool) {
	first, _ := utf8.DecodeRuneInString(text)
	return slices.BinarySearchFunc(n.literals, first, func(c *globNode[T], first rune) int {
		r, _ := utf8.DecodeRuneInString(c.label)
		return cmp.Compare(r, first)
	})
}

func (n *globNode[T]) searchClass(class *globClass) (at int, found bool) {
	return slices.BinarySearchFunc(n.classes, class.key, func(c *globNode[T], key string) int {
		return strings.Compare(c.class.key, key)
	})
}

// add makes leaf the leaf of g, which has none.
func (n *globNode[T]) add(stars *indexIDs, g glob, leaf *T) {
	for i := range g {
		if g[i].kind == globLiteral {
			n = n.addLiteral(g[i].text)
		} else {
			n = n.addToken(stars, &g[i])
		}
	}
	n.leaf = leaf
}

func (n *globNode[T]) addToken(stars *indexIDs, t *globToken) *globNode[T] {
	if c := n.next(t); c != nil {
		return c
	}
	c := &globNode[T]{}
	switch t.kind {
	case globAny:
		n.any = c
	case globStar:
		n.star = c
		stars.take(&c.id)
	default:
		c.class = t.class
		at, _ := n.searchClass(t.class)
		n.classes = slices.Insert(n.classes, at, c)
	}
	return c
}

func (n *globNode[T]) addLiteral(text string) *globNode[T] {
	for text != "" {
		at, found := n.searchLiteral(text)
		if !found {
			// A clone, so that the node does not keep the whole pattern alive.
			n.literals = slices.Insert(n.literals, at, &globNode[T]{label: strings.Clone(text)})
		}
		child := n.literals[at]
		if common := commonPrefix(child.label, text); common < len(child.label) {
			fork := &globNode[T]{label: child.label[:common], literals: []*globNode[T]{child}}
			child.label = child.label[common:]
			n.literals[at], child = fork, fork
		}
		n, text = child, text[len(child.label):]
	}
	return n
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

// remove takes out g, which has a leaf, and what leads nowhere then.
func (n *globNode[T]) remove(stars *indexIDs, g glob) {
	if len(g) == 0 {
		n.leaf = nil
		return
	}
	if g[0].kind == globLiteral {
		n.removeLiteral(stars, g[0].text, g[1:])
		return
	}
	child := n.next(&g[0])
	child.remove(stars, g[1:])
	if !child.empty() {
		return
	}
	switch g[0].kind {
	case globAny:
		n.any = nil
	case globStar:
		stars.release(&child.id)
		n.star = nil
	default:
		at, _ := n.searchClass(child.class)
		n.classes = cutAt(n.classes, at)
	}
}

// removeLiteral removes the glob that goes on with text and then rest.
func (n *globNode[T]) removeLiteral(stars *indexIDs, text string, rest glob) {
	at, _ := n.searchLiteral(text)
	child := n.literals[at]
	if text = text[len(child.label):]; text != "" {
		child.removeLiteral(stars, text, rest)
	} else {
		child.remove(stars, rest)
	}
	switch {
	case child.empty():
		n.literals = cutAt(n.literals, at)
	case child.passage():
		only := child.literals[0]
		only.label = child.label + only.label
		n.literals[at] = only
	}
}

func (n *globNode[T]) empty() bool {
	return n.leaf == nil && n.any == nil && n.star == nil && len(n.classes) == 0 && len(n.literals) == 0
}

// passage reports whether the node only leads on to one literal.
func (n *globNode[T]) passage() bool {
	return n.leaf == nil && n.any == nil && n.star == nil && len(n.classes) == 0 && len(n.literals) == 1
}

// cutAt takes out one element, keeping the order.
func cutAt[T any](s []T, at int) []T {
	copy(s[at:], s[at+1:])
	return cutLast(s)
}
