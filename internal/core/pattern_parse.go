package core

import (
	"errors"
	"fmt"
	"strings"
)

var errSegmentEmpty = errors.New("a segment is empty")

// parseAlternative parses a pattern without braces.
func parseAlternative(text string) (patternAlternative, error) {
	a := patternAlternative{text: text, own: strings.HasPrefix(text, "$") || strings.HasPrefix(text, `\$`)}
	segments := strings.Count(text, ".") + 1
	if segments > MaxPatternSegments {
		return a, fmt.Errorf("%d segments, the most is %d", segments, MaxPatternSegments)
	}
	a.segments = make([]patternSegment, 0, segments)
	doubleStars := 0
	for raw := range strings.SplitSeq(text, ".") {
		segment, wildcards, err := parseSegment(raw)
		if err != nil {
			return a, err
		}
		a.wildcards += wildcards
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

func parseSegment(raw string) (segment patternSegment, wildcards int, err error) {
	switch raw {
	case "":
		return patternSegment{}, 0, errSegmentEmpty
	case "*":
		return patternSegment{kind: segmentAny}, 1, nil
	case "**":
		return patternSegment{kind: segmentDoubleStar}, 1, nil
	}
	if !strings.ContainsAny(raw, specialCharacters) {
		return patternSegment{kind: segmentLiteral, text: raw}, 0, nil
	}
	g, wildcards, err := parseGlob(raw)
	if err != nil {
		return patternSegment{}, 0, err
	}
	if wildcards == 0 {
		return patternSegment{kind: segmentLiteral, text: g[0].text}, 0, nil
	}
	return patternSegment{kind: segmentGlob, glob: g}, wildcards, nil
}

// becomeLiteral replaces segments that are all literal by the one topic they match.
func (a *patternAlternative) becomeLiteral() {
	texts := make([]string, len(a.segments))
	for i, s := range a.segments {
		texts[i] = s.text
	}
	if joined := strings.Join(texts, "."); joined != a.text {
		a.text = joined
	}
	a.segments = nil
}
