package core

import (
	"errors"
	"strings"
	"unicode/utf8"
)

var (
	errDoubleStar      = errors.New("** must be a whole segment")
	errEscape          = errors.New(`a \ must be followed by a character of the same segment`)
	errStrayBang       = errors.New(`a ! that is not the first character must be written \!`)
	errStrayBracket    = errors.New(`a ] that ends no class must be written \]`)
	errClassOpen       = errors.New("a [ is not closed in its segment")
	errClassEmpty      = errors.New("a class names no character")
	errClassNegation   = errors.New("a class begins with more than one ! or ^")
	errClassBackslash  = errors.New(`a class cannot hold a \`)
	errClassDescending = errors.New("a range in a class runs backwards")
)

// parseGlob parses one segment without braces. The wildcards are counted as they are written.
func parseGlob(raw string) (g glob, wildcards int, err error) {
	var b globBuilder
	star := -2 // where the last star was
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case '*':
			if star == i-1 {
				return nil, 0, errDoubleStar
			}
			star = i
			b.star()
			wildcards++
		case '?':
			b.any()
			wildcards++
		case '[':
			class, size, err := parseClass(raw[i:])
			if err != nil {
				return nil, 0, err
			}
			b.add(globToken{kind: globOneOf, class: class})
			wildcards++
			i += size - 1
		case ']':
			return nil, 0, errStrayBracket
		case '!':
			return nil, 0, errStrayBang
		case '\\':
			i++
			if i == len(raw) {
				return nil, 0, errEscape
			}
			b.literal = append(b.literal, raw[i])
		default:
			b.literal = append(b.literal, c)
		}
	}
	b.flush()
	return b.tokens, wildcards, nil
}

// A globBuilder joins literal bytes, and puts every ? before a * next to it: *? and ?* are the same.
type globBuilder struct {
	tokens  glob
	literal []byte
}

func (b *globBuilder) flush() {
	if len(b.literal) > 0 {
		b.tokens = append(b.tokens, globToken{kind: globLiteral, text: string(b.literal)})
		b.literal = b.literal[:0]
	}
}

func (b *globBuilder) add(t globToken) {
	b.flush()
	b.tokens = append(b.tokens, t)
}

func (b *globBuilder) star() {
	if !b.afterStar() {
		b.add(globToken{kind: globStar})
	}
}

func (b *globBuilder) any() {
	if b.afterStar() {
		b.tokens[len(b.tokens)-1].kind = globAny
		b.star()
		return
	}
	b.add(globToken{kind: globAny})
}

func (b *globBuilder) afterStar() bool {
	n := len(b.tokens)
	return len(b.literal) == 0 && n > 0 && b.tokens[n-1].kind == globStar
}

// parseClass parses the class at the beginning of raw, which begins with [, and returns its length in bytes.
func parseClass(raw string) (class *globClass, size int, err error) {
	_, first := utf8.DecodeRuneInString(raw[1:]) // also a ] when it comes first
	end := strings.IndexByte(raw[1+first:], ']')
	if end < 0 {
		return nil, 0, errClassOpen
	}
	size = 1 + first + end + 1
	body := raw[1 : size-1]
	negate := body[0] == '!' || body[0] == '^'
	if negate {
		body = body[1:]
	}
	switch {
	case body == "":
		return nil, 0, errClassEmpty
	case negate && (body[0] == '!' || body[0] == '^'):
		return nil, 0, errClassNegation
	case strings.Contains(body, `\`):
		return nil, 0, errClassBackslash
	}
	ranges, err := parseRanges([]rune(body))
	if err != nil {
		return nil, 0, err
	}
	return newGlobClass(negate, ranges), size, nil
}

func parseRanges(body []rune) ([]runeRange, error) {
	ranges := make([]runeRange, 0, len(body))
	for len(body) > 0 {
		r := runeRange{body[0], body[0]}
		if len(body) > 2 && body[1] == '-' {
			r.last = body[2]
			if r.last < r.first {
				return nil, errClassDescending
			}
			body = body[2:]
		}
		ranges = append(ranges, r)
		body = body[1:]
	}
	return ranges, nil
}
