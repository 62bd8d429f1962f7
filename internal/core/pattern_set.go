package core

import (
	"errors"
	"fmt"
)

// The caps of the patterns of one subscription together, which bound the memory and the time one subscription can cost
// others. Past any of them all patterns are refused with an error that wraps ErrPatternInvalid.
const (
	// MaxSetPatterns is the most patterns, exclusions included.
	MaxSetPatterns = 256
	// MaxSetAlternatives is the most alternatives after brace expansion.
	MaxSetAlternatives = 1024
	// MaxSetBytes is the most bytes all alternatives have after brace expansion.
	MaxSetBytes = 64 << 10
	// MaxSetWildcards is the most wildcards all alternatives have.
	MaxSetWildcards = 4096
)

// A PatternSet is the patterns of one subscription or one list of rights. It matches a topic that at least one of its
// patterns matches and none of its exclusions. It does not change after ParsePatterns and is safe for concurrent use.
type PatternSet struct {
	patterns []*Pattern
	includes []*patternAlternative // each once
	excludes []*patternAlternative // each once
}

// ParsePatterns parses patterns, of which at least one must not be an exclusion. Their order and repetitions do not
// matter. If one is refused, all are. The error wraps ErrPatternInvalid and names the first pattern that is wrong. ss is
// not kept.
func ParsePatterns(ss []string) (*PatternSet, error) {
	if len(ss) > MaxSetPatterns {
		return nil, patternError(ss[MaxSetPatterns],
			fmt.Errorf("one of %d patterns, the most for a subscription is %d", len(ss), MaxSetPatterns))
	}
	set := &PatternSet{patterns: make([]*Pattern, 0, len(ss))}
	total := setTotals{seen: make(map[setKey]bool, len(ss))}
	for _, s := range ss {
		p, err := ParsePattern(s)
		if err != nil {
			return nil, err
		}
		if err := total.add(p); err != nil {
			return nil, patternError(s, err)
		}
		set.add(p, total.seen)
	}
	if len(set.includes) == 0 {
		if len(ss) == 0 {
			return nil, fmt.Errorf("%w: at least one is needed", ErrPatternInvalid)
		}
		return nil, patternError(ss[0], errors.New("exclusions alone match nothing, a pattern without ! is needed"))
	}
	return set, nil
}

// setKey tells alternatives apart.
type setKey struct {
	text              string
	literal, excludes bool
}

func (s *PatternSet) add(p *Pattern, seen map[setKey]bool) {
	s.patterns = append(s.patterns, p)
	for i := range p.alternatives {
		a := &p.alternatives[i]
		key := setKey{a.text, a.literal(), p.exclusion}
		if seen[key] {
			continue
		}
		seen[key] = true
		if p.exclusion {
			s.excludes = append(s.excludes, a)
		} else {
			s.includes = append(s.includes, a)
		}
	}
}

// Match reports whether a pattern of the set matches topic and no exclusion does. topic is taken to be legal. The cost
// grows linearly with the length of the topic, whatever the patterns.
func (s *PatternSet) Match(topic string) bool {
	return anyMatch(s.includes, topic) && !s.excluded(topic)
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
func (s *PatternSet) Strings() []string {
	texts := make([]string, len(s.patterns))
	for i, p := range s.patterns {
		texts[i] = p.text
	}
	return texts
}

// setTotals counts what a set's patterns come to.
type setTotals struct {
	seen                           map[setKey]bool
	alternatives, bytes, wildcards int
}

func (t *setTotals) add(p *Pattern) error {
	t.alternatives += len(p.alternatives)
	for i := range p.alternatives {
		t.bytes += len(p.alternatives[i].text)
		t.wildcards += p.alternatives[i].wildcards
	}
	for _, c := range []struct {
		what      string
		got, most int
	}{
		{"alternatives", t.alternatives, MaxSetAlternatives},
		{"bytes", t.bytes, MaxSetBytes},
		{"wildcards", t.wildcards, MaxSetWildcards},
	} {
		if c.got > c.most {
			return fmt.Errorf("the patterns so far have %d %s after brace expansion, the most is %d", c.got, c.what, c.most)
		}
	}
	return nil
}
