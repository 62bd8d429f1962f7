package rpc

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// instant is what Timestamp and Duration have in common: two numbers.
type instant struct {
	seconds int64
	nanos   int32
}

// mergeInstant reads b over what t holds, as protobuf does when a message field comes twice. ok is false when b is malformed.
func mergeInstant(t *instant, b []byte) (ok bool) {
	for len(b) > 0 {
		var f field
		if f, b, ok = nextField(b); !ok {
			return false
		}
		if f.typ != protowire.VarintType {
			continue
		}
		switch f.num {
		case fieldSeconds:
			t.seconds = int64(f.number)
		case fieldNanos:
			t.nanos = int32(f.number)
		}
	}
	return true
}

// The range of google.protobuf.Duration: about 10 000 years.
const maxDurationSeconds = 315_576_000_000

// patience reads t as a Duration that must not be negative. More than a time.Duration can hold becomes the longest one.
func (t instant) patience() (time.Duration, error) {
	if t.seconds < 0 || t.seconds > maxDurationSeconds || t.nanos < 0 || t.nanos >= 1e9 {
		return 0, errMaxWait
	}
	const longest = time.Duration(1<<63 - 1)
	if t.seconds >= int64(longest/time.Second) {
		return longest, nil
	}
	return time.Duration(t.seconds)*time.Second + time.Duration(t.nanos), nil
}

// time reads t as a Timestamp. One outside the years 1 to 9999 gives the zero time.
func (t instant) time() time.Time {
	const first, end = -62_135_596_800, 253_402_300_800
	if t.seconds < first || t.seconds >= end || t.nanos < 0 || t.nanos >= 1e9 {
		return time.Time{}
	}
	return time.Unix(t.seconds, int64(t.nanos)).UTC()
}

// timestamp parts a time for a google.protobuf.Timestamp.
func timestamp(t time.Time) instant {
	return instant{seconds: t.Unix(), nanos: int32(t.Nanosecond())}
}

// encodedLen is the length of what append appends.
func (t instant) encodedLen() int {
	n := 0
	if t.seconds != 0 {
		n += 1 + protowire.SizeVarint(uint64(t.seconds))
	}
	if t.nanos != 0 {
		n += 1 + protowire.SizeVarint(uint64(t.nanos))
	}
	return n
}

// append encodes t as the content of a Timestamp or Duration.
func (t instant) append(dst []byte) []byte {
	if t.seconds != 0 {
		dst = protowire.AppendVarint(append(dst, tagSeconds), uint64(t.seconds))
	}
	if t.nanos != 0 {
		dst = protowire.AppendVarint(append(dst, tagNanos), uint64(t.nanos))
	}
	return dst
}
