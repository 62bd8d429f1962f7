package rpc

import (
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// Encoding reads and writes records for a core.Broker: each is one `messages` entry of a frame, tag and length included.
// Its methods are safe for concurrent use.
type Encoding struct{}

var _ core.Encoding = Encoding{}

// Len implements core.Encoding.
func (Encoding) Len(data []byte) int {
	if len(data) > 1 && data[0] == tagMessages && data[1] < oneByteLen {
		return 2 + int(data[1])
	}
	if n := skipRecord(data); n > 0 {
		return n
	}
	return protowireLen(data)
}

func protowireLen(data []byte) int {
	_, _, n := protowire.ConsumeField(data)
	if n < 0 {
		// Only records that were scanned come here. Should one not be, it is the last.
		return len(data)
	}
	return n
}

// Key implements core.Encoding.
func (Encoding) Key(record []byte) []byte {
	_, key := topicAndKey(record)
	return key
}

// Topic implements core.Encoding.
func (Encoding) Topic(record []byte) []byte {
	topic, _ := topicAndKey(record)
	return topic
}

func topicAndKey(record []byte) (topic, key []byte) {
	var shape simple
	var tail tail
	if shape.read(record) && tail.read(record[shape.payloadEnd:shape.end]) {
		return record[shape.topicAt:shape.topicEnd], tail.key
	}
	f, _, ok := nextField(record)
	if !ok {
		return nil, nil
	}
	m, _ := examine(f.value) // behind the payload there may be another topic, which counts
	return m.topic, m.key
}

// Decode implements core.Encoding.
func (Encoding) Decode(record []byte) (core.Message, error) {
	f, _, ok := nextField(record)
	if !ok {
		return core.Message{}, errMalformed
	}
	var d deliveries
	var m core.Message
	err := d.readMessage(f.value, &m)
	return m, err
}

// Append implements core.Encoding.
func (Encoding) Append(dst []byte, m *core.Message) []byte { return appendRecord(dst, m) }

// appendRecord encodes m as one record at the end of dst. Fields that have their zero value take no room.
func appendRecord(dst []byte, m *core.Message) []byte {
	return appendRecordOf(dst, m, messageLen(m))
}

// appendRecordOf is appendRecord for a message whose length is known.
func appendRecordOf(dst []byte, m *core.Message, messageLen int) []byte {
	if messageLen < oneByteLen && messageLen == len(m.Topic)+len(m.Payload)+4 && m.Topic != "" && len(m.Payload) > 0 {
		return appendShort(dst, m)
	}
	dst = slices.Grow(dst, bytesFieldLen(messageLen))
	dst = append(dst, tagMessages)
	dst = protowire.AppendVarint(dst, uint64(messageLen))
	return appendMessage(dst, m)
}

// oneByteLen is from which length on a length takes more than one byte.
const oneByteLen = 0x80

// appendShort is appendRecordOf for a message of a topic and a payload, so short that every length is one byte. With such
// messages a publisher spends much of its time here.
func appendShort(dst []byte, m *core.Message) []byte {
	topic, payload := len(m.Topic), len(m.Payload)
	dst = append(dst, tagMessages, byte(topic+payload+4), tagTopic, byte(topic))
	dst = append(dst, m.Topic...)
	dst = append(dst, tagPayload, byte(payload))
	return append(dst, m.Payload...)
}

// appendMessage encodes m at the end of dst.
func appendMessage(dst []byte, m *core.Message) []byte {
	dst = appendText(dst, tagTopic, m.Topic)
	if len(m.Payload) > 0 {
		dst = append(dst, tagPayload)
		dst = protowire.AppendBytes(dst, m.Payload)
	}
	if len(m.Headers) > 0 {
		dst = appendHeaders(dst, m.Headers)
	}
	dst = appendText(dst, tagKey, m.Key)
	if !m.PublishTime.IsZero() {
		t := timestamp(m.PublishTime)
		dst = t.append(append(dst, tagTime, byte(t.encodedLen())))
	}
	return dst
}

func appendHeaders(dst []byte, headers map[string]string) []byte {
	for k, v := range headers {
		dst = append(dst, tagHeaders)
		dst = protowire.AppendVarint(dst, uint64(bytesFieldLen(len(k))+bytesFieldLen(len(v))))
		dst = append(dst, tagEntryKey)
		dst = protowire.AppendString(dst, k)
		dst = append(dst, tagEntryValue)
		dst = protowire.AppendString(dst, v)
	}
	return dst
}

func headersLen(headers map[string]string) int {
	n := 0
	for k, v := range headers {
		n += bytesFieldLen(bytesFieldLen(len(k)) + bytesFieldLen(len(v)))
	}
	return n
}

func appendText(dst []byte, tag byte, s string) []byte {
	if s == "" {
		return dst
	}
	return protowire.AppendString(append(dst, tag), s)
}

// messageLen is the length of what appendMessage appends.
func messageLen(m *core.Message) int {
	n := 0
	if m.Topic != "" {
		n += bytesFieldLen(len(m.Topic))
	}
	if len(m.Payload) > 0 {
		n += bytesFieldLen(len(m.Payload))
	}
	if len(m.Headers) > 0 { // to range over a map costs, even over none
		n += headersLen(m.Headers)
	}
	if m.Key != "" {
		n += bytesFieldLen(len(m.Key))
	}
	if !m.PublishTime.IsZero() {
		n += bytesFieldLen(timestamp(m.PublishTime).encodedLen())
	}
	return n
}

// bytesFieldLen is the length of a field with a tag of one byte and n bytes of content.
func bytesFieldLen(n int) int { return 1 + protowire.SizeVarint(uint64(n)) + n }

// appendPatience encodes d as a Duration field.
func appendPatience(dst []byte, field protowire.Number, d time.Duration) []byte {
	t := instant{seconds: int64(d / time.Second), nanos: int32(d % time.Second)}
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return t.append(append(dst, byte(t.encodedLen())))
}
