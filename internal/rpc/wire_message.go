package rpc

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// facts are what the broker has to know of a message it otherwise passes on unread.
type facts struct {
	topic []byte // aliases the message
	key   []byte // aliases the message; empty: no key
	size  int    // topic, key, headers and payload, as max_message_size counts them
	err   error  // why it must not be passed on: some client could not read it. Topic and size are not judged here.
}

func (m *facts) refuse(err error) {
	if m.err == nil {
		m.err = err
	}
}

// examine reads an encoded Message. ok is false when it is not valid protobuf. As in protobuf the last of several
// topics or keys counts, and unknown fields are let pass.
func examine(body []byte) (m facts, ok bool) {
	for len(body) > 0 {
		var f field
		if f, body, ok = nextField(body); !ok {
			return m, false
		}
		if !m.note(f) {
			return m, false
		}
	}
	return m, true
}

// note takes one field of a Message into account; false: it is malformed inside.
func (m *facts) note(f field) bool {
	m.judge(f, fieldTime, protowire.BytesType)
	if f.typ != protowire.BytesType {
		return true
	}
	switch f.num {
	case fieldTopic:
		m.topic = f.value
		m.size += len(f.value)
		if !utf8.Valid(f.value) {
			m.refuse(errTopicNotText)
		}
	case fieldPayload:
		m.size += len(f.value)
	case fieldHeaders:
		return m.noteHeader(f.value)
	case fieldKey:
		m.key = f.value
		m.noteText(f.value)
	case fieldTime:
		return m.noteTime(f.value)
	}
	return true
}

// judge refuses what Go's protobuf reads but other libraries may not. The fields from 1 to last are known, and should be of type typ.
func (m *facts) judge(f field, last protowire.Number, typ protowire.Type) {
	if f.overlong {
		m.refuse(errOverlong)
	}
	if f.num <= last && f.typ != typ {
		// protobuf.js, and with it Node, takes it for what it should be: it reads something else, or cannot read on.
		m.refuse(errWireType)
	}
	if f.typ == protowire.StartGroupType {
		// Libraries differ in how deeply groups may be nested.
		m.refuse(errGroupField)
	}
}

func (m *facts) noteText(text []byte) {
	m.size += len(text)
	if !utf8.Valid(text) {
		m.refuse(errNotText)
	}
}

func (m *facts) noteHeader(entry []byte) bool {
	for len(entry) > 0 {
		f, rest, ok := nextField(entry)
		if !ok {
			return false
		}
		entry = rest
		m.judge(f, fieldEntryValue, protowire.BytesType)
		if f.typ == protowire.BytesType && (f.num == fieldEntryKey || f.num == fieldEntryValue) {
			m.noteText(f.value)
		}
	}
	return true
}

func (m *facts) noteTime(b []byte) bool {
	for len(b) > 0 {
		f, rest, ok := nextField(b)
		if !ok {
			return false
		}
		b = rest
		m.judge(f, fieldNanos, protowire.VarintType)
		if f.num == fieldNanos && f.width > maxInt32Bytes && f.width < negativeBytes {
			m.refuse(errWideNumber)
		}
	}
	return true
}

var errTopicNotText = fmt.Errorf("%w: not valid UTF-8", core.ErrTopicInvalid)

// recordAllowance is how many bytes a record may take beyond twice max_message_size. Framing is not counted as size, but
// a message of a million empty headers has next to no size and must not grow past what its receivers take.
const recordAllowance = 1024

// checkSize refuses a message whose content, or whose encoding, is too long.
func checkSize(size, recordLen, maxMessageSize int) error {
	if size > maxMessageSize {
		return fmt.Errorf("%w: %d bytes is over the limit of %d bytes", core.ErrMessageTooLarge, size, maxMessageSize)
	}
	if recordLen > 2*maxMessageSize+recordAllowance {
		return fmt.Errorf("%w: its encoding takes %d bytes, over the limit of %d bytes for %d bytes of content",
			core.ErrMessageTooLarge, recordLen, 2*maxMessageSize+recordAllowance, size)
	}
	return nil
}
