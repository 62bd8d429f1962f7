package rpc

import (
	"bytes"
	"unicode/utf8"
)

// simple is the shape that nearly every record has: topic, payload, perhaps a key and a time, in this order. The numbers
// are offsets from the beginning of the record.
type simple struct {
	topicAt, topicEnd     int
	payloadAt, payloadEnd int
	end                   int
}

// read looks at the record at the beginning of b. false: it has another shape, or is malformed, and examine has to look
// at it. The part behind payloadEnd is left to readTail, and whether the topic is text remains to be seen.
func (s *simple) read(b []byte) bool {
	if len(b) < 4 || b[0] != tagMessages {
		return false
	}
	size, i := uint(b[1]), 2
	if size >= 0x80 {
		if size, i = readLength(b, 1); i == 0 {
			return false
		}
	}
	if size > uint(len(b)-i) {
		return false
	}
	b = b[:i+int(size)]
	if i+2 > len(b) || b[i] != tagTopic || b[i+1] >= 0x80 {
		return false
	}
	s.end = len(b)
	s.topicAt = i + 2
	s.topicEnd = s.topicAt + int(b[i+1])
	if s.topicEnd > len(b) {
		return false
	}
	return s.readPayload(b)
}

func (s *simple) readPayload(b []byte) bool {
	i := s.topicEnd
	s.payloadAt, s.payloadEnd = i, i
	if i+2 > len(b) || b[i] != tagPayload {
		return true
	}
	size := uint(b[i+1])
	i += 2
	if size >= 0x80 {
		if size, i = readLength(b, i-1); i == 0 {
			return false
		}
	}
	if size > uint(len(b)-i) {
		return false
	}
	s.payloadAt, s.payloadEnd = i, i+int(size)
	return true
}

// like reports whether the record at the beginning of b has the same lengths and the same topic as the one at the beginning
// of model, which s describes. Neighbours mostly do, and one comparison tells.
func (s *simple) like(model, b []byte) bool {
	return len(b) >= s.end && bytes.Equal(b[:s.payloadAt], model[:s.payloadAt])
}

// readTail reads what follows the payload: nothing, a key or a time or both. time is the content of the Timestamp, nil if there
// is none. ok is false when there is anything else.
func readTail(b []byte) (key, time []byte, ok bool) {
	if len(b) >= 2 && b[0] == tagKey {
		end := 2 + int(b[1])
		if end >= 2+0x80 || end > len(b) || !utf8.Valid(b[2:end]) {
			return nil, nil, false
		}
		key, b = b[2:end], b[end:]
	}
	if len(b) == 0 {
		return key, nil, true
	}
	if b[0] != tagTime || len(b) < 2 || int(b[1]) != len(b)-2 || !simpleTime(b[2:]) {
		return nil, nil, false
	}
	return key, b[2:], true
}

// readLength reads a varint of two to four bytes at b[i:] and returns where it ends, or 0.
func readLength(b []byte, i int) (v uint, next int) {
	for shift := uint(0); shift < 28 && i < len(b); shift += 7 {
		c := b[i]
		i++
		v |= uint(c&0x7f) << shift
		if c < 0x80 {
			return v, i
		}
	}
	return 0, 0
}

// simpleTime reports whether b is a Timestamp made of seconds and nanos only, each of at most nine bytes.
func simpleTime(b []byte) bool {
	for len(b) > 0 {
		if b[0] != tagSeconds && b[0] != tagNanos {
			return false
		}
		i := 1
		for i < len(b) && i < 9 && b[i] >= 0x80 {
			i++
		}
		if i == len(b) || b[i] >= 0x80 {
			return false
		}
		b = b[i+1:]
	}
	return true
}
