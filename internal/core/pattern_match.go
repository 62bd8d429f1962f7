package core

import "strings"

// A patternAlternative is one pattern without braces.
type patternAlternative struct {
	text      string           // a literal one: the topic it matches; else the pattern, escapes in place
	segments  []patternSegment // nil: literal. No two ** are neighbours
	wildcards int
	own       bool // the first segment begins with a literal $: it is for the broker's own topics
}

type patternSegment struct {
	kind segmentKind
	text string // segmentLiteral
	glob glob   // segmentGlob
}

type segmentKind uint8

const (
	segmentLiteral    segmentKind = iota
	segmentAny                    // *
	segmentDoubleStar             // **
	segmentGlob                   // wildcards among other characters
)

func (a *patternAlternative) literal() bool { return a.segments == nil }

// match reports whether the alternative matches the topic, and how many tests of segments and tokens it took. After a
// mismatch only the last ** seen takes one more segment, as in glob.match.
func (a *patternAlternative) match(topic string) (ok bool, steps int) {
	if a.literal() {
		return topic == a.text, 1
	}
	if ownTopic(topic) != a.own {
		return false, 1
	}
	at, rest, more := 0, topic, true             // next segment of the pattern; what is left of the topic, if anything
	again, againRest, againMore := -1, "", false // behind the last **
	for {
		steps++
		if at < len(a.segments) {
			segment := &a.segments[at]
			if segment.kind == segmentDoubleStar {
				at++
				if at == len(a.segments) {
					return true, steps
				}
				again, againRest, againMore = at, rest, more
				continue
			}
			if more {
				head, tail, found := strings.Cut(rest, ".")
				ok, n := segment.match(head)
				steps += n
				if ok {
					at, rest, more = at+1, tail, found
					continue
				}
			}
		} else if !more {
			return true, steps
		}
		if again < 0 || !againMore {
			return false, steps
		}
		_, againRest, againMore = strings.Cut(againRest, ".")
		at, rest, more = again, againRest, againMore
	}
}

// match is for one segment of a topic, so not for **.
func (s *patternSegment) match(segment string) (ok bool, steps int) {
	switch s.kind {
	case segmentLiteral:
		return segment == s.text, 1
	case segmentGlob:
		return s.glob.match(segment)
	}
	return true, 1
}
