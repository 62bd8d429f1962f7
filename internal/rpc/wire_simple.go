package rpc

import "bytes"

// simple is the shape that nearly every record has: topic, payload and a tail, in the order of their numbers as every
// protobuf library writes them. The numbers are offsets from the beginning of the record.
type simple struct {
	topicAt, topicEnd     int
	payloadAt, payloadEnd int
	end                   int
}

// read looks at the record at the beginning of b. false: it has another shape, or is malformed, and examine has to look
// at it. The tail behind payloadEnd is not looked at, and whether the topic is text remains to be seen.
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

// size is that of topic and payload, as facts.size.
func (s *simple) size() int { return s.topicEnd - s.topicAt + s.payloadEnd - s.payloadAt }

// like reports whether the record at the beginning of b has the same lengths and the same topic as the one at the beginning
// of model, which s describes. Neighbours mostly do, and one comparison tells.
func (s *simple) like(model, b []byte) bool {
	return len(b) >= s.end && bytes.Equal(b[:s.payloadAt], model[:s.payloadAt])
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
