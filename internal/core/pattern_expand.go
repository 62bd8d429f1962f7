package core

import (
	"errors"
	"fmt"
	"strings"
)

var (
	errBraceOpen  = errors.New("a { is not closed")
	errBraceClose = errors.New("a } without {")
)

// expandBraces returns what the braces of a pattern stand for, at most MaxPatternAlternatives texts without braces.
// Escapes are left in place.
func expandBraces(pattern string) ([]string, error) {
	if !strings.ContainsAny(pattern, "{}") {
		return []string{pattern}, nil
	}
	e := braceExpander{text: pattern}
	texts, err := e.row()
	if err != nil {
		return nil, err
	}
	if e.pos < len(e.text) {
		return nil, errBraceClose
	}
	return texts, nil
}

// A braceExpander reads a pattern once from left to right. Work and memory are bounded because every group has at least
// one alternative: the number of texts never shrinks, so the first excess is final.
type braceExpander struct {
	text  string
	pos   int
	depth int
}

// row reads text and groups up to the end of the pattern or, inside braces, to the comma or brace that ends the
// alternative, and returns their combinations.
func (e *braceExpander) row() ([]string, error) {
	texts := []string{""}
	start := e.pos
	flush := func() {
		if chunk := e.text[start:e.pos]; chunk != "" {
			for i := range texts {
				texts[i] += chunk
			}
		}
	}
	for e.pos < len(e.text) {
		switch c := e.text[e.pos]; {
		case c == '\\':
			e.pos = min(e.pos+2, len(e.text))
		case c == '{':
			flush()
			group, err := e.group()
			if err != nil {
				return nil, err
			}
			if texts, err = combine(texts, group); err != nil {
				return nil, err
			}
			start = e.pos
		case c == '}', c == ',' && e.depth > 0:
			flush()
			return texts, nil
		default:
			e.pos++
		}
	}
	flush()
	return texts, nil
}

// group reads a { with its alternatives up to and including the }.
func (e *braceExpander) group() ([]string, error) {
	e.depth++
	var texts []string
	for {
		e.pos++ // the { or the comma
		alternatives, err := e.row()
		if err != nil {
			return nil, err
		}
		texts = append(texts, alternatives...)
		if len(texts) > MaxPatternAlternatives {
			return nil, errAlternatives()
		}
		if e.pos == len(e.text) {
			return nil, errBraceOpen
		}
		if e.text[e.pos] == '}' {
			e.pos++
			e.depth--
			return texts, nil
		}
	}
}

func combine(heads, tails []string) ([]string, error) {
	if len(heads)*len(tails) > MaxPatternAlternatives {
		return nil, errAlternatives()
	}
	texts := make([]string, 0, len(heads)*len(tails))
	for _, head := range heads {
		for _, tail := range tails {
			texts = append(texts, head+tail)
		}
	}
	return texts, nil
}

func errAlternatives() error {
	return fmt.Errorf("too many alternatives after brace expansion, the most is %d", MaxPatternAlternatives)
}
