package rpc

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// Field numbers of SubscribeRequest; of Ack, Nack and ExtendDeadline, where the ranges have the same; and of SequenceRange.
const (
	fieldOpen   = 1
	fieldAck    = 2
	fieldNack   = 3
	fieldExtend = 4
	fieldLeave  = 5

	fieldRanges = 1

	fieldFirst = 1
	fieldLast  = 2
)

// readRequest reads a SubscribeRequest. The ranges of an ack, nack or extend are not in request: as generated types they would take fifty times
// their bytes. They are read one by one from frame, which must not be changed.
func readRequest(frame []byte) (request *tinybrokerv1.SubscribeRequest, ranges iter.Seq[core.SequenceRange], err error) {
	var rest []byte
	kind, from := protowire.Number(0), 0 // of the last of several, and where it begins: that one counts, with those of its kind right behind it
	for b := frame; len(b) > 0; {
		f, next, ok := nextField(b)
		if !ok {
			return nil, nil, errMalformed
		}
		raw := b[:len(b)-len(next)]
		if f.typ == protowire.BytesType && f.num >= fieldOpen && f.num <= fieldLeave && f.num != kind {
			kind, from = f.num, len(frame)-len(b)
		}
		if hasRanges(f) {
			others, ok := withoutRanges(f.value)
			if !ok {
				return nil, nil, errMalformed
			}
			raw = protowire.AppendBytes(protowire.AppendTag(nil, f.num, protowire.BytesType), others)
		}
		rest = append(rest, raw...)
		b = next
	}
	request = new(tinybrokerv1.SubscribeRequest)
	if proto.Unmarshal(rest, request) != nil {
		return nil, nil, errMalformed
	}
	return request, rangesOf(kind, frame[from:]), nil
}

func hasRanges(f field) bool {
	return f.typ == protowire.BytesType && f.num >= fieldAck && f.num <= fieldExtend
}

func isRange(f field) bool { return f.typ == protowire.BytesType && f.num == fieldRanges }

// withoutRanges returns everything else of an Ack, Nack or ExtendDeadline; false: it is not valid protobuf.
func withoutRanges(body []byte) (others []byte, ok bool) {
	for len(body) > 0 {
		f, next, ok := nextField(body)
		if !ok {
			return nil, false
		}
		if !isRange(f) {
			others = append(others, body[:len(body)-len(next)]...)
		} else if _, ok := readRange(f.value); !ok {
			return nil, false
		}
		body = next
	}
	return others, true
}

// rangesOf returns the ranges of a request of this kind, which withoutRanges has found to be valid.
func rangesOf(kind protowire.Number, request []byte) iter.Seq[core.SequenceRange] {
	return func(yield func(core.SequenceRange) bool) {
		for f := range fieldsOf(request) {
			if f.num != kind || !hasRanges(f) {
				continue
			}
			for f := range fieldsOf(f.value) {
				if !isRange(f) {
					continue
				}
				if r, _ := readRange(f.value); !yield(r) {
					return
				}
			}
		}
	}
}

// readRange reads a SequenceRange; false: it is not valid protobuf.
func readRange(b []byte) (r core.SequenceRange, ok bool) {
	for len(b) > 0 {
		var f field
		if f, b, ok = nextField(b); !ok {
			return r, false
		}
		if f.typ != protowire.VarintType {
			continue
		}
		switch f.num {
		case fieldFirst:
			r.First = f.number
		case fieldLast:
			r.Last = f.number
		}
	}
	if r.Last == 0 {
		r.Last = r.First
	}
	return r, true
}

// appendAck encodes a SubscribeRequest that acknowledges these ranges. Acks are most of what a member says, and the generated
// types would take an allocation for each range.
func appendAck(dst []byte, ranges []core.SequenceRange) []byte {
	size := 0
	for _, r := range ranges {
		size += bytesFieldLen(rangeLen(r))
	}
	dst = slices.Grow(dst, size+maxAckPrefix)
	dst = protowire.AppendTag(dst, fieldAck, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	for _, r := range ranges {
		dst = protowire.AppendTag(dst, fieldRanges, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(rangeLen(r)))
		dst = appendUint(dst, fieldFirst, r.First)
		if r.Last != r.First {
			dst = appendUint(dst, fieldLast, r.Last)
		}
	}
	return dst
}

// maxAckPrefix is the most that the ack's own tag and length take.
const maxAckPrefix = 1 + maxPrefixBytes

// rangeLen is the encoded length of a SequenceRange.
func rangeLen(r core.SequenceRange) int {
	n := 1 + protowire.SizeVarint(r.First)
	if r.Last != r.First {
		n += 1 + protowire.SizeVarint(r.Last)
	}
	return n
}
