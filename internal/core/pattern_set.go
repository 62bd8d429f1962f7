package core

import (
	"errors"
	"fmt"
	"slices"
)

// The caps of the patterns of one subscription together, equal ones included, which bound the memory and the time that one
// subscription can cost others. Past any of them all its patterns are refused with an error that wraps ErrPatternInvalid.
const (
	// MaxSetPatterns is the most patterns, counted after brace expansion, exclusions included.
	MaxSetPatterns = 256
	// MaxSetBytes is the most bytes all of them have after brace expansion.
	MaxSetBytes = 64 << 10
	// MaxSetWildcards is the most wildcards all of them have.
	MaxSetWildcards = 1024
)

// A PatternSet is the patterns of one subscription or of one list of rights. It matches a topic that at least one of its
// patterns matches and none of its exclusions. It does not change after ParsePatterns and is safe for concurrent use.
type PatternSet struct {
	patterns []*Pattern
	includes []*patternAlternative // each once
	excludes []*patternAlternative // each once
	size     int
}

// ParsePatterns parses patterns, of which at least one must not be an exclusion. Their order and repetitions do not
// matter. If one is refused, all are. The error wraps ErrPatternInvalid and names the first pattern that is wrong. ss is
// not kept.
func ParsePatterns(ss []string) (*PatternSet, error) {
	if len(ss) == 0 {
		return nil, fmt.Errorf("%w: at least one is needed", ErrPatternInvalid)
	}
	// Checked at once, so that a million patterns cost no more than one too many.
	if len(ss) > MaxSetPatterns {
		return nil, patternError(ss[MaxSetPatterns], setCapError("patterns", len(ss), MaxSetPatterns))
	}
	set := &PatternSet{patterns: make([]*Pattern, 0, len(ss))}
	var total setTotals
	for _, s := range ss {
		p, err := ParsePattern(s)
		if err != nil {
			return nil, err
		}
		if err := total.add(p); err != nil {
			return nil, patternError(s, err)
		}
		set.patterns = append(set.patterns, p)
	}
	set.sort(total.patterns)
	if len(set.includes) == 0 {
		return nil, patternError(ss[0], errors.New("exclusions alone match nothing, a pattern without ! is needed"))
	}
	set.size = total.size()
	return set, nil
}

// sort divides the alternatives, of which there are n, into includes and excludes without repetitions.
func (s *PatternSet) sort(n int) {
	type identity struct {
		text               string
		literal, exclusion bool
	}
	var seen map[identity]bool
	if n > 1 {
		seen = make(map[identity]bool, n)
	}
	for _, p := range s.patterns {
		for i := range p.alternatives {
			a := &p.alternatives[i]
			id := identity{a.text, a.literal(), p.exclusion}
			if seen[id] {
				continue
			}
			if seen != nil {
				seen[id] = true
			}
			if p.exclusion {
				s.excludes = append(s.excludes, a)
			} else {
				s.includes = append(s.includes, a)
			}
		}
	}
}

// Match reports whether a pattern of the set matches topic and no exclusion does. topic is taken to be legal. The cost
// grows linearly with the length of the topic, whatever the patterns.
func (s *PatternSet) Match(topic string) bool {
	return anyMatch(s.includes, topic) && !s.excluded(topic)
}

// ownTopics reports whether the set may match topics of the broker's own.
func (s *PatternSet) ownTopics() bool {
	return slices.ContainsFunc(s.includes, func(a *patternAlternative) bool { return a.own || a.literal() && ownTopic(a.text) })
}

func (s *PatternSet) excluded(topic string) bool { return anyMatch(s.excludes, topic) }

func anyMatch(alternatives []*patternAlternative, topic string) bool {
	for _, a := range alternatives {
		if ok, _ := a.match(topic); ok {
			return true
		}
	}
	return false
}

// Strings returns the patterns as they were given. The slice is the caller's.
func (s *PatternSet) Strings() []string { return s.appendTexts(make([]string, 0, len(s.patterns))) }

// maxShownBytes is how many bytes of patterns one row of a snapshot has, or one eviction that is remembered. There may be a thousand of
// either, and a set may have sixteen times as many.
const maxShownBytes = 4 << 10

// shownPatterns returns the first of some patterns, as many as are shown; an ellipsis stands for the others.
func shownPatterns(patterns []string) []string {
	room := maxShownBytes
	for i, p := range patterns {
		if room -= len(p); room < 0 {
			return append(patterns[:i:i], "…")
		}
	}
	return patterns
}

func (s *PatternSet) appendTexts(dst []string) []string {
	for _, p := range s.patterns {
		dst = append(dst, p.text)
	}
	return dst
}

// Size estimates, rather too high, the bytes of memory that the set takes while it is subscribed: its own and those of
// what routes topics to it.
func (s *PatternSet) Size() int { return s.size }

// setTotals counts what the patterns of a set come to.
type setTotals struct {
	patterns, segments, wildcards, bytes int
}

func (t *setTotals) add(p *Pattern) error {
	t.patterns += len(p.alternatives)
	for i := range p.alternatives {
		a := &p.alternatives[i]
		t.segments += len(a.segments)
		t.wildcards += a.wildcards
		t.bytes += len(a.text)
	}
	switch {
	case t.patterns > MaxSetPatterns:
		return setCapError("patterns", t.patterns, MaxSetPatterns)
	case t.bytes > MaxSetBytes:
		return setCapError("bytes", t.bytes, MaxSetBytes)
	case t.wildcards > MaxSetWildcards:
		return setCapError("wildcards", t.wildcards, MaxSetWildcards)
	}
	return nil
}

func setCapError(what string, got, most int) error {
	return fmt.Errorf("with it the subscription has %d %s after brace expansion, the most is %d", got, what, most)
}

func (t *setTotals) size() int {
	const perSet, perPattern, perSegment, perWildcard, perByte = 512, 512, 256, 512, 8
	return perSet + t.patterns*perPattern + t.segments*perSegment + t.wildcards*perWildcard + perByte*t.bytes
}
