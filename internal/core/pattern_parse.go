package core

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

var (
	errSegmentEmpty    = errors.New("a segment is empty")
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

// parseAlternative parses a pattern without braces.
func parseAlternative(text string) (patternAlternative, error) {
	a := patternAlternative{text: text, system: strings.HasPrefix(text, "$") || strings.HasPrefix(text, `\$`)}
	if n := strings.Count(text, ".") + 1; n > MaxPatternSegments {
		return a, fmt.Errorf("%d segments, the most is %d", n, MaxPatternSegments)
	}
	doubleStars := 0
	for raw := range strings.SplitSeq(text, ".") {
		segment, err := parseSegment(raw)
		if err != nil {
			return a, err
		}
		a.wildcards += segment.wildcards()
		if segment.kind == segmentDoubleStar {
			doubleStars++
			if n := len(a.segments); n > 0 && a.segments[n-1].kind == segmentDoubleStar {
				continue // **.** is the same as **
			}
		}
		a.segments = append(a.segments, segment)
	}
	if a.wildcards > MaxPatternWildcards {
		return a, fmt.Errorf("%d wildcards, the most is %d", a.wildcards, MaxPatternWildcards)
	}
	if doubleStars > MaxPatternDoubleStars {
		return a, fmt.Errorf("** %d times, the most is %d", doubleStars, MaxPatternDoubleStars)
	}
	if a.wildcards == 0 {
		a.becomeLiteral()
	}
	return a, nil
}

func parseSegment(raw string) (patternSegment, error) {
	switch raw {
	case "":
		return patternSegment{}, errSegmentEmpty
	case "*":
		return patternSegment{kind: segmentAny}, nil
	case "**":
		return patternSegment{kind: segmentDoubleStar}, nil
	}
	if !strings.ContainsAny(raw, specialCharacters) {
		return patternSegment{kind: segmentLiteral, text: raw}, nil
	}
	g, err := parseGlob(raw)
	if err != nil {
		return patternSegment{}, err
	}
	if len(g) == 1 && g[0].kind == globLiteral {
		return patternSegment{kind: segmentLiteral, text: g[0].text}, nil
	}
	return patternSegment{kind: segmentGlob, glob: g}, nil
}

func parseGlob(raw string) (glob, error) {
	var g glob
	var literal []byte
	add := func(t globToken) {
		if len(literal) > 0 {
			g = append(g, globToken{kind: globLiteral, text: string(literal)})
			literal = literal[:0]
		}
		g = append(g, t)
	}
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; c {
		case '*':
			if i > 0 && len(literal) == 0 && g[len(g)-1].kind == globStar {
				return nil, errDoubleStar
			}
			add(globToken{kind: globStar})
		case '?':
			add(globToken{kind: globAny})
		case '[':
			class, size, err := parseClass(raw[i:])
			if err != nil {
				return nil, err
			}
			add(globToken{kind: globOneOf, class: class})
			i += size - 1
		case ']':
			return nil, errStrayBracket
		case '!':
			return nil, errStrayBang
		case '\\':
			i++
			if i == len(raw) {
				return nil, errEscape
			}
			literal = append(literal, raw[i])
		default:
			literal = append(literal, c)
		}
	}
	if len(literal) > 0 {
		g = append(g, globToken{kind: globLiteral, text: string(literal)})
	}
	return g, nil
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
