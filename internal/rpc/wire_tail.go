package rpc

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// tail is what may follow the payload of a simple record: headers, a key and a time, all of them optional, in this order,
// and short.
type tail struct {
	headers []byte // `headers` fields, one after the other
	key     []byte
	time    []byte // the content of the Timestamp; nil: there is none
	size    int    // of headers and key, as facts.size
}

// read reads a whole tail. False: there is something else in it, or it is malformed.
func (t *tail) read(b []byte) bool {
	*t = tail{}
	if len(b) == 0 {
		return true
	}
	rest := b
	for len(rest) >= 2 && rest[0] == tagHeaders {
		key, value, n := simpleHeader(rest)
		if n == 0 || !utf8.Valid(key) || !utf8.Valid(value) {
			return false
		}
		t.size += len(key) + len(value)
		rest = rest[n:]
	}
	t.headers = b[:len(b)-len(rest)]
	if len(rest) >= 2 && rest[0] == tagKey {
		end := 2 + int(rest[1])
		if rest[1] >= 0x80 || end > len(rest) || !utf8.Valid(rest[2:end]) {
			return false
		}
		t.key, rest = rest[2:end], rest[end:]
		t.size += len(t.key)
	}
	if len(rest) == 0 {
		return true
	}
	if rest[0] != tagTime || len(rest) < 2 || int(rest[1]) != len(rest)-2 || !simpleTime(rest[2:]) {
		return false
	}
	t.time = rest[2:]
	return true
}

// simpleHeader reads a `headers` field of less than 128 bytes that has a key and a value in this order, and returns its
// length; 0: it is another one, or malformed.
func simpleHeader(b []byte) (key, value []byte, n int) {
	if len(b) < 6 || b[1] >= 0x80 || 2+int(b[1]) > len(b) {
		return nil, nil, 0
	}
	b = b[:2+int(b[1])]
	if len(b) < 6 || b[2] != tagEntryKey {
		return nil, nil, 0
	}
	keyEnd := 4 + int(b[3])
	if keyEnd+2 > len(b) || b[keyEnd] != tagEntryValue || keyEnd+2+int(b[keyEnd+1]) != len(b) {
		return nil, nil, 0
	}
	return b[4:keyEnd], b[keyEnd+2:], len(b)
}

// simpleTime reports whether b is a Timestamp made of seconds and nanos only, of at most nine and maxInt32Bytes bytes.
func simpleTime(b []byte) bool {
	for len(b) > 0 {
		most := 9
		switch b[0] {
		case tagSeconds:
		case tagNanos:
			most = maxInt32Bytes
		default:
			return false
		}
		i := 1
		for i < len(b) && i < most && b[i] >= 0x80 {
			i++
		}
		if i == len(b) || b[i] >= 0x80 {
			return false
		}
		b = b[i+1:]
	}
	return true
}

// readSimpleTime reads a Timestamp for which simpleTime is true.
func readSimpleTime(b []byte) (t instant) {
	for len(b) > 0 {
		v, n := protowire.ConsumeVarint(b[1:])
		if b[0] == tagSeconds {
			t.seconds = int64(v)
		} else {
			t.nanos = int32(v)
		}
		b = b[1+n:]
	}
	return t
}
