package rpc

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// Field numbers of SubscribeRequest, Ack and SequenceRange.
const (
	fieldAck    = 2
	fieldRanges = 1
	fieldFirst  = 1
	fieldLast   = 2
)

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
