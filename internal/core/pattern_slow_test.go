package core

import (
	"errors"
	"strings"
)

// slowMatch is the grammar spelled out without regard to cost: what the matcher and the index must agree with. It sets the
// ! of an exclusion aside. An error means that the pattern is refused.
func slowMatch(pattern, topic string) (bool, error) {
	pattern = strings.TrimPrefix(pattern, "!")
	alternatives, err := slowExpand([]rune(pattern))
	if err != nil {
		return false, err
	}
	matched := false
	for _, a := range alternatives {
		ok, err := slowAlternative(a, topic)
		if err != nil {
			return false, err
		}
		matched = matched || ok
	}
	return matched, nil
}

// slowExpand replaces the first group by each of its alternatives and starts over.
func slowExpand(p []rune) ([]string, error) {
	depth, open := 0, 0
	var cuts []int // the braces and commas of the group
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '{':
			if depth++; depth == 1 {
				open, cuts = i, []int{i}
			}
		case ',':
			if depth == 1 {
				cuts = append(cuts, i)
			}
		case '}':
			if depth--; depth < 0 {
				return nil, errors.New("brace")
			}
			if depth > 0 {
				continue
			}
			cuts = append(cuts, i)
			var all []string
			for c := range len(cuts) - 1 {
				text := string(p[:open]) + string(p[cuts[c]+1:cuts[c+1]]) + string(p[i+1:])
				more, err := slowExpand([]rune(text))
				if err != nil {
					return nil, err
				}
				all = append(all, more...)
			}
			return all, nil
		}
	}
	if depth > 0 {
		return nil, errors.New("brace")
	}
	return []string{string(p)}, nil
}

func slowAlternative(p, topic string) (bool, error) {
	var segments [][]slowToken
	for raw := range strings.SplitSeq(p, ".") {
		tokens, err := slowTokens([]rune(raw))
		if err != nil {
			return false, err
		}
		segments = append(segments, tokens)
	}
	if first := segments[0][0]; strings.HasPrefix(topic, "$") && !(first.literal && first.test('$')) {
		return false, nil
	}
	return slowSegments(segments, strings.Split(topic, ".")), nil
}

// slowToken is one character of a pattern: a star, two of them, or a test for one character.
type slowToken struct {
	star, doubleStar bool
	literal          bool
	test             func(r rune) bool
}

func slowTokens(p []rune) ([]slowToken, error) {
	if len(p) == 0 {
		return nil, errors.New("empty segment")
	}
	if string(p) == "**" {
		return []slowToken{{doubleStar: true}}, nil
	}
	var tokens []slowToken
	for i := 0; i < len(p); i++ {
		literal := p[i]
		switch p[i] {
		case '*':
			if i > 0 && tokens[len(tokens)-1].star {
				return nil, errors.New("**")
			}
			tokens = append(tokens, slowToken{star: true})
			continue
		case '?':
			tokens = append(tokens, slowToken{test: func(rune) bool { return true }})
			continue
		case '[':
			end := i + 2
			for end < len(p) && p[end] != ']' {
				end++
			}
			if end >= len(p) {
				return nil, errors.New("class not closed")
			}
			test, err := slowClass(p[i+1 : end])
			if err != nil {
				return nil, err
			}
			tokens = append(tokens, slowToken{test: test})
			i = end
			continue
		case ']', '!':
			return nil, errors.New("stray")
		case '\\':
			if i++; i == len(p) {
				return nil, errors.New("escape")
			}
			literal = p[i]
		}
		tokens = append(tokens, slowToken{literal: true, test: func(r rune) bool { return r == literal }})
	}
	return tokens, nil
}

func slowClass(p []rune) (func(rune) bool, error) {
	negate := p[0] == '!' || p[0] == '^'
	if negate {
		p = p[1:]
	}
	if len(p) == 0 || negate && (p[0] == '!' || p[0] == '^') || strings.ContainsRune(string(p), '\\') {
		return nil, errors.New("class")
	}
	members := make(map[rune]bool)
	for i := 0; i < len(p); i++ {
		from, to := p[i], p[i]
		if i+2 < len(p) && p[i+1] == '-' {
			to = p[i+2]
			i += 2
		}
		if to < from {
			return nil, errors.New("range")
		}
		for r := from; r <= to; r++ {
			members[r] = true
		}
	}
	return func(r rune) bool { return members[r] != negate }, nil
}

// slowSegments keeps, token after token, which numbers of segments the pattern so far may have taken.
func slowSegments(p [][]slowToken, topic []string) bool {
	taken := make([]bool, len(topic)+1)
	taken[0] = true
	for _, tokens := range p {
		next := make([]bool, len(taken))
		for i, ok := range taken {
			switch {
			case !ok:
			case tokens[0].doubleStar:
				for j := i; j < len(next); j++ {
					next[j] = true
				}
			case i < len(topic) && slowGlob(tokens, []rune(topic[i])):
				next[i+1] = true
			}
		}
		taken = next
	}
	return taken[len(topic)]
}

// slowGlob does the same with the characters of a segment.
func slowGlob(p []slowToken, s []rune) bool {
	taken := make([]bool, len(s)+1)
	taken[0] = true
	for _, token := range p {
		next := make([]bool, len(taken))
		for i, ok := range taken {
			switch {
			case !ok:
			case token.star:
				for j := i; j < len(next); j++ {
					next[j] = true
				}
			case i < len(s) && token.test(s[i]):
				next[i+1] = true
			}
		}
		taken = next
	}
	return taken[len(s)]
}
