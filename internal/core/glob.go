package core

import (
	"strings"
	"unicode/utf8"
)

// A glob is a pattern for the characters inside one segment: a row of tokens. No two stars and no two literals are
// neighbours.
type glob []globToken

type globToken struct {
	kind  globKind
	text  string     // globLiteral: never empty
	class *globClass // globOneOf
}

type globKind uint8

const (
	globLiteral globKind = iota // the text itself
	globAny                     // ?: one character
	globOneOf                   // [a-z]: one character of a class
	globStar                    // *: any run of characters
)

// match reports whether the glob matches the whole of s, and how many tokens it tested to find out: at most as many as
// there are tokens for each character of s, since after a mismatch only the last star seen takes one more character.
// Whatever an earlier star could still take, the last one can take as well.
func (g glob) match(s string) (ok bool, steps int) {
	at, pos := 0, 0      // next token, next byte
	again, from := -1, 0 // the token behind the last star, and where it was last tried
	for {
		steps++
		if at < len(g) {
			token := &g[at]
			if token.kind == globStar {
				at++
				if at == len(g) {
					return true, steps
				}
				again, from = at, pos
				continue
			}
			if n := token.consume(s[pos:]); n > 0 {
				at, pos = at+1, pos+n
				continue
			}
		} else if pos == len(s) {
			return true, steps
		}
		if again < 0 || from == len(s) {
			return false, steps
		}
		_, size := utf8.DecodeRuneInString(s[from:])
		from += size
		if next := &g[again]; next.kind == globLiteral {
			skip := strings.Index(s[from:], next.text)
			if skip < 0 {
				return false, steps
			}
			from += skip
		}
		at, pos = again, from
	}
}

// consume returns how many bytes at the beginning of s the token takes; 0 if it does not match. It is not for stars.
func (t *globToken) consume(s string) int {
	if t.kind == globLiteral {
		if strings.HasPrefix(s, t.text) {
			return len(t.text)
		}
		return 0
	}
	if s == "" {
		return 0
	}
	r, size := utf8.DecodeRuneInString(s)
	if t.kind == globOneOf && !t.class.match(r) {
		return 0
	}
	return size
}
