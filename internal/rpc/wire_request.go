package rpc

import (
	"encoding/binary"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// requestRoom is how many bytes are to be free before an encoded PublishRequest, for what makes a record of it.
const requestRoom = 1 + binary.MaxVarintLen32

// publishRecord turns an encoded PublishRequest, before which there is requestRoom in b, into a record, which topic aliases. The record is in b, and b
// must not be used any more, unless something had to be cut out. An error wraps core.ErrProtocol, core.ErrTopicInvalid or
// core.ErrMessageTooLarge.
func publishRecord(b []byte, maxMessageSize int) (record, topic []byte, maxWait time.Duration, err error) {
	message, maxWait, err := splitRequest(b[requestRoom:])
	if err != nil {
		return nil, nil, 0, err
	}
	prefix := 1 + protowire.SizeVarint(uint64(len(message)))
	if len(message) == len(b)-requestRoom {
		record = b[requestRoom-prefix:]
	} else {
		record = make([]byte, prefix+len(message))
		copy(record[prefix:], message)
	}
	protowire.AppendVarint(append(record[:0], tagMessages), uint64(len(message)))
	m, ok := examine(record[prefix:])
	if !ok {
		return nil, nil, 0, errMalformed
	}
	if err := m.verdict(len(record), maxMessageSize); err != nil {
		return nil, nil, 0, err
	}
	if err := core.ValidateTopic(m.topic); err != nil {
		return nil, nil, 0, err
	}
	return record, m.topic, maxWait, nil
}

// splitRequest parts the encoded Message from max_wait. message aliases body unless something had to be cut out of it.
func splitRequest(body []byte) (message []byte, maxWait time.Duration, err error) {
	var wait instant
	message, cut := body, false
	for rest := body; len(rest) > 0; {
		f, next, ok := nextField(rest)
		if !ok {
			return nil, 0, errMalformed
		}
		raw := rest[:len(rest)-len(next)]
		switch {
		case f.num != fieldRequestMaxWait:
			if cut {
				message = append(message, raw...)
			}
		case f.typ == protowire.BytesType && !mergeInstant(&wait, f.value):
			return nil, 0, errMalformed
		case !cut:
			cut = true
			message = append(make([]byte, 0, len(body)), body[:len(body)-len(rest)]...)
		}
		rest = next
	}
	maxWait, err = wait.patience()
	return message, maxWait, err
}
