package rpc

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// deliveryFrame builds an encoded SubscribeResponse around the records of d: the publisher's bytes as they are, and a few of
// its own. pending takes charge of the delivery's bytes.
func deliveryFrame(d *core.Delivery, pending *pendingFrames) mem.BufferSlice {
	head := make([]byte, 0, 48)
	head = appendUint(head, fieldFirstSequence, d.FirstSequence)
	head = appendUint(head, fieldRequestsHeard, d.Heard)
	head = appendUint(head, fieldDroppedBefore, d.DroppedBefore)
	if d.Lagging != nil {
		head = appendLagging(head, d.Lagging)
	}
	bufs := make(mem.BufferSlice, 0, len(d.Pieces)+pending.extraBuffers(d)+2)
	bufs = append(bufs, mem.SliceBuffer(head))
	bufs = pending.appendParts(bufs, d)
	attempt := &firstAttempt
	if d.Attempt != 1 {
		again := appendUint(make([]byte, 0, tailCapacity), fieldAttempt, uint64(d.Attempt))
		attempt = &again
	}
	return append(bufs, pending.tail(attempt, d))
}

// closedFrame builds the last frame of a subscription.
func closedFrame(e core.Ending, pending *pendingFrames) (mem.BufferSlice, error) {
	encoded, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 0, tailCapacity), closedResponse(e))
	return mem.BufferSlice{pending.tail(&encoded, nil)}, err
}

// firstAttempt is the encoded `attempt` of frames that are not redelivered.
var firstAttempt = appendUint(make([]byte, 0, tailCapacity), fieldAttempt, 1)

func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendLagging(b []byte, l *core.Lagging) []byte {
	warning := &tinybrokerv1.Lagging{
		Queued:      uint64(l.Queued),
		QueuedBytes: uint64(l.QueuedBytes),
		Capacity:    uint32(l.Capacity),
	}
	encoded, err := proto.Marshal(warning)
	if err != nil {
		return b // three numbers cannot fail to encode; without them the frame is still whole
	}
	return protowire.AppendBytes(protowire.AppendTag(b, fieldLagging, protowire.BytesType), encoded)
}
