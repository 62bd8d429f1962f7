package core

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of names, in bytes of UTF-8 and in segments.
const (
	// MaxTopicBytes is the most bytes a topic has.
	MaxTopicBytes = 512
	// MaxTopicSegments is the most segments a topic has.
	MaxTopicSegments = 32
	// MaxNameBytes is the most bytes a subscription id, client name or group name has.
	MaxNameBytes = 128
)

// ValidateTopic reports whether a publisher may publish to topic: 1 to MaxTopicBytes bytes of UTF-8 in 1 to
// MaxTopicSegments segments separated by dots, no segment empty, no white space, no control character, none of
// * ? [ ] { } \ ! and no leading $, which marks the broker's own topics.
//
// The error wraps ErrTopicInvalid, says what is wrong and where, and is short whatever the topic. Positions count bytes
// from 1. A legal topic costs no allocation. topic is neither kept nor changed.
func ValidateTopic(topic []byte) error {
	if len(topic) == 0 {
		return topicError(topic, "it is empty")
	}
	if len(topic) > MaxTopicBytes {
		return topicError(topic, fmt.Sprintf("%d bytes, the most is %d", len(topic), MaxTopicBytes))
	}
	if ownTopic(topic) {
		return topicError(topic, "topics that begin with $ belong to the broker")
	}
	segments, start := 1, 0
	for i := 0; i < len(topic); {
		switch topicBytes[topic[i]] {
		case bytePlain:
			i++
		case byteDot:
			if i == start {
				return topicError(topic, fmt.Sprintf("segment %d is empty", segments))
			}
			i++
			segments, start = segments+1, i
		case byteWide:
			r, size := utf8.DecodeRune(topic[i:])
			if fault := runeFault(r, size); fault != "" {
				return topicError(topic, fmt.Sprintf("%s at byte %d", fault, i+1))
			}
			i += size
		default:
			fault := runeFault(rune(topic[i]), 1)
			if fault == "" {
				fault = fmt.Sprintf("character %q", topic[i])
			}
			return topicError(topic, fmt.Sprintf("%s at byte %d", fault, i+1))
		}
	}
	if start == len(topic) {
		return topicError(topic, fmt.Sprintf("segment %d is empty", segments))
	}
	if segments > MaxTopicSegments {
		return topicError(topic, fmt.Sprintf("%d segments, the most is %d", segments, MaxTopicSegments))
	}
	return nil
}

// ownTopic reports whether a topic is one of the broker's own.
func ownTopic[T string | []byte](topic T) bool { return len(topic) > 0 && topic[0] == '$' }

func topicError(topic []byte, why string) error {
	return fmt.Errorf("%w %s: %s", ErrTopicInvalid, quoteShort(string(topic[:min(len(topic), maxQuoted)])), why)
}

// ValidateName reports whether name may be the id of a subscription or the name of a client: 1 to MaxNameBytes bytes of
// UTF-8 without control characters. what says in the error which name it is, for example "subscription id". The error
// wraps ErrProtocol and is short whatever the name.
func ValidateName(what, name string) error {
	if name == "" {
		return nameError(what, name, "it is empty")
	}
	if len(name) > MaxNameBytes {
		return nameError(what, name, fmt.Sprintf("%d bytes, the most is %d", len(name), MaxNameBytes))
	}
	for i, r := range name {
		if r == utf8.RuneError && !strings.HasPrefix(name[i:], string(utf8.RuneError)) {
			return nameError(what, name, fmt.Sprintf("invalid UTF-8 at byte %d", i+1))
		}
		if unicode.IsControl(r) {
			return nameError(what, name, fmt.Sprintf("control character at byte %d", i+1))
		}
	}
	return nil
}

// ValidateGroupName reports whether name may name a consumer group: a legal name as for ValidateName that is also one
// legal segment of a topic, since it ends the group's dead-letter topic: no dot, no white space, none of
// * ? [ ] { } \ !. The error wraps ErrProtocol and is short whatever the name.
func ValidateGroupName(name string) error {
	const what = "group name"
	if err := ValidateName(what, name); err != nil {
		return err
	}
	for i, r := range name {
		if r == '.' || unicode.IsSpace(r) || r < utf8.RuneSelf && topicBytes[r] == byteBad {
			return nameError(what, name, fmt.Sprintf("character %q at byte %d", r, i+1))
		}
	}
	return nil
}

func nameError(what, name, why string) error {
	return fmt.Errorf("%w: %s %s: %s", ErrProtocol, what, quoteShort(name), why)
}

// runeFault says why a decoded character can stand neither in a topic nor in a pattern; "" when it can. The special
// characters of patterns are the caller's to judge.
func runeFault(r rune, size int) string {
	switch {
	case r == utf8.RuneError && size <= 1:
		return "invalid UTF-8"
	case unicode.IsControl(r):
		return "control character"
	case unicode.IsSpace(r):
		return "white space"
	}
	return ""
}

// What one byte of a topic is.
const (
	byteBad   = iota // never part of a topic
	bytePlain        // an ASCII character that stands for itself
	byteDot          // ends a segment
	byteWide         // part of a longer UTF-8 sequence
)

var topicBytes = func() (table [256]byte) {
	for c := range table {
		switch {
		case c >= utf8.RuneSelf:
			table[c] = byteWide
		case c == '.':
			table[c] = byteDot
		case c > ' ' && c < 0x7f && !strings.ContainsRune(specialCharacters, rune(c)):
			table[c] = bytePlain
		}
	}
	return table
}()
