package rpc

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// Field numbers of SubscribeResponse; its messages are fieldMessages.
const (
	fieldFirstSequence = 2
	fieldAttempt       = 3
	fieldDroppedBefore = 4
	fieldOpened        = 5
	fieldClosed        = 6
	fieldLagging       = 7
	fieldRequestsHeard = 8
)

// deliveries reads the frames of one subscription: reset for each frame, then next until it returns false. It keeps what
// neighbouring messages have in common. The zero value is ready. Not safe for concurrent use.
type deliveries struct {
	count         int // messages in the frame
	firstSequence uint64
	attempt       uint32
	droppedBefore uint64
	requestsHeard uint64
	opened        *tinybrokerv1.Opened
	closed        *tinybrokerv1.Closed
	lagging       *tinybrokerv1.Lagging

	rest  []byte // what next has not read yet
	taken int    // messages that next has read

	shape   simple // of the last message, if model is not nil
	model   []byte // begins with the last message
	topic   string // of the last message
	headers map[string]string
}

// reset reads all of an encoded SubscribeResponse but its messages.
func (d *deliveries) reset(frame []byte) error {
	*d = deliveries{rest: frame, topic: d.topic, headers: d.headers}
	for b := frame; len(b) > 0; {
		if n := skipRecord(b); n > 0 {
			d.count++
			b = b[n:]
			continue
		}
		f, rest, ok := nextField(b)
		if !ok {
			return errMalformed
		}
		b = rest
		if err := d.note(f); err != nil {
			return err
		}
	}
	return nil
}

// skipRecord returns the length of the record at the beginning of b, or 0 if something else is there.
func skipRecord(b []byte) int {
	if len(b) < 2 || b[0] != tagMessages {
		return 0
	}
	size, i := uint(b[1]), 2
	if size >= 0x80 {
		if size, i = readLength(b, 1); i == 0 {
			return 0
		}
	}
	if size > uint(len(b)-i) {
		return 0
	}
	return i + int(size)
}

func (d *deliveries) note(f field) error {
	switch f.typ {
	case protowire.VarintType:
		switch f.num {
		case fieldFirstSequence:
			d.firstSequence = f.number
		case fieldAttempt:
			d.attempt = uint32(f.number)
		case fieldDroppedBefore:
			d.droppedBefore = f.number
		case fieldRequestsHeard:
			d.requestsHeard = f.number
		}
	case protowire.BytesType:
		switch f.num {
		case fieldMessages:
			d.count++
		case fieldOpened:
			d.opened = orNew(d.opened)
			return merge(f.value, d.opened)
		case fieldClosed:
			d.closed = orNew(d.closed)
			return merge(f.value, d.closed)
		case fieldLagging:
			d.lagging = orNew(d.lagging)
			return merge(f.value, d.lagging)
		}
	}
	return nil
}

func orNew[T any](m *T) *T {
	if m == nil {
		return new(T)
	}
	return m
}

func merge(b []byte, m proto.Message) error {
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(b, m); err != nil {
		return errMalformed
	}
	return nil
}

// next reads the next message of the frame into out. Payload, Key and Headers alias the frame, and Headers is reused; Topic
// may be kept. False with no error: there are no more.
func (d *deliveries) next(out *Delivery) (bool, error) {
	for d.taken < d.count {
		b := d.rest
		n, isMessage, err := d.read(b, out)
		if err != nil {
			return false, err
		}
		d.rest = b[n:]
		if !isMessage {
			continue
		}
		out.Sequence = d.firstSequence + uint64(d.taken)
		out.Attempt = d.attempt
		out.heard = d.requestsHeard
		out.DroppedBefore = 0
		if d.taken == 0 {
			out.DroppedBefore = d.droppedBefore
		}
		d.taken++
		out.More = d.taken < d.count
		return true, nil
	}
	return false, nil
}

// read reads the field at the beginning of b and returns its length.
func (d *deliveries) read(b []byte, out *Delivery) (n int, isMessage bool, err error) {
	if (d.model != nil && d.shape.like(d.model, b)) || d.readShape(b) {
		if d.fill(b, out) {
			d.model = b
			return d.shape.end, true, nil
		}
	}
	d.model = nil
	f, rest, ok := nextField(b)
	if !ok {
		return 0, false, errMalformed
	}
	n = len(b) - len(rest)
	if f.num != fieldMessages || f.typ != protowire.BytesType {
		return n, false, nil
	}
	return n, true, d.readMessage(f.value, &out.Message)
}

func (d *deliveries) readShape(b []byte) bool {
	d.model = nil
	if !d.shape.read(b) {
		return false
	}
	d.setTopic(b[d.shape.topicAt:d.shape.topicEnd])
	return true
}

// setTopic keeps the string when the topic is the same.
func (d *deliveries) setTopic(topic []byte) {
	if string(topic) != d.topic {
		d.topic = string(topic)
	}
}

// fill sets out from the message at the beginning of b, which d.shape describes; false: its tail is not simple.
func (d *deliveries) fill(b []byte, out *Delivery) bool {
	s := &d.shape
	out.Topic = d.topic
	out.Payload = b[s.payloadAt:s.payloadEnd:s.payloadEnd]
	if s.payloadEnd == s.end {
		out.Headers, out.Key, out.PublishTime = nil, "", time.Time{}
		return true
	}
	var t tail
	if !t.read(b[s.payloadEnd:s.end]) {
		return false
	}
	out.Headers, out.Key, out.PublishTime = nil, alias(t.key), time.Time{}
	if len(t.headers) > 0 {
		out.Headers = d.emptyHeaders()
		for rest := t.headers; len(rest) > 0; {
			key, value, n := simpleHeader(rest)
			out.Headers[alias(key)] = alias(value)
			rest = rest[n:]
		}
	}
	if t.time != nil {
		out.PublishTime = readSimpleTime(t.time).time()
	}
	return true
}

// emptyHeaders returns the map that all messages share, since each is valid until the next one is read.
func (d *deliveries) emptyHeaders() map[string]string {
	if d.headers == nil {
		d.headers = make(map[string]string)
	}
	clear(d.headers)
	return d.headers
}

// readMessage reads a message of any shape.
func (d *deliveries) readMessage(body []byte, m *core.Message) error {
	*m = core.Message{}
	topic := []byte(nil)
	var stamp instant
	stamped := false
	for len(body) > 0 {
		f, rest, ok := nextField(body)
		if !ok {
			return errMalformed
		}
		body = rest
		if f.typ != protowire.BytesType {
			continue
		}
		switch f.num {
		case fieldTopic:
			topic = f.value
		case fieldPayload:
			m.Payload = slices.Clip(f.value)
		case fieldHeaders:
			if m.Headers == nil {
				m.Headers = d.emptyHeaders()
			}
			ok = readHeader(f.value, m.Headers)
		case fieldKey:
			m.Key = alias(f.value)
		case fieldTime:
			stamped, ok = true, mergeInstant(&stamp, f.value)
		}
		if !ok {
			return errMalformed
		}
	}
	d.setTopic(topic)
	m.Topic = d.topic
	if stamped {
		m.PublishTime = stamp.time()
	}
	return nil
}

func readHeader(entry []byte, headers map[string]string) (ok bool) {
	var key, value []byte
	for len(entry) > 0 {
		var f field
		if f, entry, ok = nextField(entry); !ok {
			return false
		}
		if f.typ != protowire.BytesType {
			continue
		}
		switch f.num {
		case fieldEntryKey:
			key = f.value
		case fieldEntryValue:
			value = f.value
		}
	}
	headers[alias(key)] = alias(value)
	return true
}

// alias makes a string of b without copying it. It lives as long as the frame stays unchanged, which is what Delivery
// promises.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// checkSequence reports a frame whose messages do not continue the delivery numbers seen before it.
func (d *deliveries) checkSequence(last uint64) error {
	if d.count > 0 && d.firstSequence != last+1 {
		return fmt.Errorf("%w: delivery number %d follows %d", core.ErrProtocol, d.firstSequence, last)
	}
	return nil
}
