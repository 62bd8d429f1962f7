package rpc

import "unicode/utf8"

// simple is the shape that nearly every record has: topic, payload, perhaps a key and a time, in this order.
type simple struct {
	topic []byte
	key   []byte // empty: none
	end   int    // length of the record
	size  int    // as facts.size
}

// readSimple reads the record at the beginning of b if it has the simple shape and is well-formed; whether the topic is
// text is left to be seen. ok is false for every other record: examine has to look at it.
func readSimple(b []byte) (s simple, ok bool) {
	if len(b) < 4 || b[0] != tagMessages {
		return s, false
	}
	size, i := uint(b[1]), 2
	if size >= 0x80 {
		if size, i = readLength(b, 1); i == 0 {
			return s, false
		}
	}
	if size > uint(len(b)-i) {
		return s, false
	}
	s.end = i + int(size)
	b = b[:s.end]
	if i+2 > len(b) || b[i] != tagTopic || b[i+1] >= 0x80 {
		return s, false
	}
	topicLen := int(b[i+1])
	i += 2
	if topicLen > len(b)-i {
		return s, false
	}
	s.topic = b[i : i+topicLen]
	s.size = topicLen
	i += topicLen
	if i+2 <= len(b) && b[i] == tagPayload {
		payloadLen := uint(b[i+1])
		i += 2
		if payloadLen >= 0x80 {
			if payloadLen, i = readLength(b, i-1); i == 0 {
				return s, false
			}
		}
		if payloadLen > uint(len(b)-i) {
			return s, false
		}
		i += int(payloadLen)
		s.size += int(payloadLen)
	}
	if i == len(b) {
		return s, true
	}
	return s.readTail(b[i:])
}

// readTail reads what may follow the payload.
func (s simple) readTail(b []byte) (simple, bool) {
	if len(b) >= 2 && b[0] == tagKey {
		n := int(b[1])
		if n >= 0x80 || n > len(b)-2 || !utf8.Valid(b[2:2+n]) {
			return s, false
		}
		s.key = b[2 : 2+n]
		s.size += n
		b = b[2+n:]
	}
	return s, len(b) == 0 || simpleTime(b)
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

// simpleTime reports whether b is one publish_time field made of seconds and nanos only, each of at most nine bytes.
func simpleTime(b []byte) bool {
	if len(b) < 2 || b[0] != tagTime || int(b[1]) != len(b)-2 {
		return false
	}
	for i := 2; i < len(b); {
		if b[i] != tagSeconds && b[i] != tagNanos {
			return false
		}
		i++
		limit := min(i+9, len(b))
		for i < limit && b[i] >= 0x80 {
			i++
		}
		if i == limit {
			return false
		}
		i++
	}
	return true
}
