package rpc

import (
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// A record is one entry of PublishStreamRequest.messages or SubscribeResponse.messages: tag, length and the encoded
// Message. The two fields have the same number and type, so a record can be moved from one to the other as it is.

// Field numbers of Message and of the frames that hold it.
const (
	fieldMessages = 1 // PublishStreamRequest and SubscribeResponse

	fieldTopic   = 1
	fieldPayload = 2
	fieldHeaders = 3
	fieldKey     = 4
	fieldTime    = 5

	fieldEntryKey   = 1
	fieldEntryValue = 2

	fieldSeconds = 1 // Timestamp and Duration
	fieldNanos   = 2

	fieldFrameMaxWait   = 2 // PublishStreamRequest
	fieldRequestMaxWait = 6 // PublishRequest
)

// The tags of those fields as single bytes.
const (
	tagMessages   = fieldMessages<<3 | byte(protowire.BytesType)
	tagTopic      = fieldTopic<<3 | byte(protowire.BytesType)
	tagPayload    = fieldPayload<<3 | byte(protowire.BytesType)
	tagHeaders    = fieldHeaders<<3 | byte(protowire.BytesType)
	tagKey        = fieldKey<<3 | byte(protowire.BytesType)
	tagTime       = fieldTime<<3 | byte(protowire.BytesType)
	tagEntryKey   = fieldEntryKey<<3 | byte(protowire.BytesType)
	tagEntryValue = fieldEntryValue<<3 | byte(protowire.BytesType)
	tagSeconds    = fieldSeconds<<3 | byte(protowire.VarintType)
	tagNanos      = fieldNanos<<3 | byte(protowire.VarintType)
)

// maxPrefixBytes is the longest spelling of a tag or a length that every protobuf library reads; Go's reads longer ones.
const maxPrefixBytes = 5

// An int32 takes up to maxInt32Bytes, or negativeBytes when it is negative. protobuf.js reads no others.
const (
	maxInt32Bytes = 5
	negativeBytes = 10
)

var (
	errMalformed  = fmt.Errorf("%w: not valid protobuf", core.ErrProtocol)
	errMaxWait    = fmt.Errorf("%w: max_wait is negative or out of range", core.ErrProtocol)
	errNotText    = fmt.Errorf("%w: a key or header is not valid UTF-8", core.ErrProtocol)
	errGroupField = fmt.Errorf("%w: a message holds a protobuf group", core.ErrProtocol)
	errOverlong   = fmt.Errorf("%w: a tag or length takes more than %d bytes", core.ErrProtocol, maxPrefixBytes)
	errWireType   = fmt.Errorf("%w: a field of a message has another wire type than it should", core.ErrProtocol)
	errWideNumber = fmt.Errorf("%w: nanoseconds take more than %d bytes", core.ErrProtocol, maxInt32Bytes)
)

// field is one field of an encoded message. For length-delimited fields value is the content, else it is empty.
type field struct {
	num      protowire.Number
	typ      protowire.Type
	value    []byte
	number   uint64 // of a varint
	width    int    // of a varint: the bytes that it takes
	overlong bool   // the tag or the length is spelt in a way that not every protobuf library reads
}

// fieldsOf returns the fields of b, as far as they are whole and legal.
func fieldsOf(b []byte) iter.Seq[field] {
	return func(yield func(field) bool) {
		for len(b) > 0 {
			f, rest, ok := nextField(b)
			if !ok || !yield(f) {
				return
			}
			b = rest
		}
	}
}

// nextField takes the first field off b and returns the rest. ok is false when b does not begin with a whole legal field.
func nextField(b []byte) (f field, rest []byte, ok bool) {
	num, typ, tagLen := protowire.ConsumeTag(b)
	if tagLen < 0 || num > protowire.MaxValidNumber {
		return f, nil, false
	}
	f.num, f.typ, f.overlong = num, typ, tagLen > maxPrefixBytes
	b = b[tagLen:]
	var n int
	switch typ {
	case protowire.BytesType:
		f.value, n = protowire.ConsumeBytes(b)
		f.overlong = f.overlong || n-len(f.value) > maxPrefixBytes
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(b)
		f.width = n
	default:
		n = protowire.ConsumeFieldValue(num, typ, b)
	}
	if n < 0 {
		return f, nil, false
	}
	return f, b[n:], true
}
