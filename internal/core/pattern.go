package core

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The caps of one pattern. Past any of them the pattern is refused with an error that wraps ErrPatternInvalid.
const (
	// MaxPatternBytes is the most bytes a pattern has, as it is written.
	MaxPatternBytes = 1024
	// MaxPatternAlternatives is the most alternatives brace expansion may make of one pattern, equal ones included.
	MaxPatternAlternatives = 64
	// MaxPatternSegments is the most segments one alternative has.
	MaxPatternSegments = 32
	// MaxPatternWildcards is the most wildcards one alternative has: each *, ?, class and ** counts one.
	MaxPatternWildcards = 64
	// MaxPatternDoubleStars is the most ** one alternative has.
	MaxPatternDoubleStars = 8
)

// specialCharacters mean something in patterns and are never part of a topic.
const specialCharacters = `*?[]{}\!`

// A Pattern matches topics. It does not change after ParsePattern and is safe for concurrent use.
type Pattern struct {
	text         string
	exclusion    bool
	alternatives []patternAlternative // what brace expansion made of the text, never empty
}

// ParsePattern parses one pattern. Segments are separated by dots; every character that has no other meaning stands for
// itself, and upper and lower case differ.
//
//   - * is any run of characters inside one segment, also an empty one. A segment that is only * is exactly one segment.
//   - ? is one character.
//   - [ab] and [a-z] are one character of those named, [!a] and [^a] one character of all others. In a class a ] directly
//     behind the [ and a - that is first, last or behind a range stand for themselves. A backslash, a dot, an empty class,
//     a range that runs backwards and a second ! or ^ at the beginning are refused.
//   - ** is zero or more whole segments. It is refused as part of a segment.
//   - {a,b} is a or b, and the two may hold dots, wildcards and further braces. Braces are expanded before anything else is
//     looked at, also inside of [ ]. Each result must be a legal pattern: a{,b} is, a.{,b} is not.
//   - \ takes the meaning from the next character. It cannot stand before a dot, at the end or in a class.
//   - ! as the very first character makes an exclusion. Elsewhere a ! must be escaped, and so must a ] that ends no class.
//
// An alternative whose first segment does not begin with a literal $ never matches a topic that begins with $, neither to
// include nor to exclude it.
//
// Refused as well: empty segments, white space, control characters, invalid UTF-8 and what exceeds a cap. The error wraps
// ErrPatternInvalid, names the pattern and is short whatever the pattern.
func ParsePattern(s string) (*Pattern, error) {
	p := &Pattern{text: s}
	if err := p.parse(); err != nil {
		return nil, patternError(s, err)
	}
	return p, nil
}

func patternError(pattern string, why error) error {
	return fmt.Errorf("%w %s: %v", ErrPatternInvalid, quoteShort(pattern), why)
}

func (p *Pattern) parse() error {
	if len(p.text) > MaxPatternBytes {
		return fmt.Errorf("%d bytes, the most is %d", len(p.text), MaxPatternBytes)
	}
	if err := checkCharacters(p.text); err != nil {
		return err
	}
	var body string
	body, p.exclusion = strings.CutPrefix(p.text, "!")
	texts, err := expandBraces(body)
	if err != nil {
		return err
	}
	p.alternatives = make([]patternAlternative, 0, len(texts))
	for _, text := range texts {
		a, err := parseAlternative(text)
		if err != nil {
			return err
		}
		p.alternatives = append(p.alternatives, a)
	}
	return nil
}

func checkCharacters(s string) error {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if fault := runeFault(r, size); fault != "" {
			return fmt.Errorf("%s at byte %d", fault, i+1)
		}
		i += size
	}
	return nil
}

// Match reports whether the pattern matches topic, which is taken to be legal. An exclusion matches what it excludes. The
// cost grows linearly with the length of the topic, whatever the pattern.
func (p *Pattern) Match(topic string) bool {
	for i := range p.alternatives {
		if ok, _ := p.alternatives[i].match(topic); ok {
			return true
		}
	}
	return false
}

// String returns the pattern as it was given to ParsePattern.
func (p *Pattern) String() string { return p.text }
