package bench

import "encoding/binary"

// MinSize is the least payload: what a stamp takes.
const MinSize = 16

// stamp is what a payload begins with.
type stamp struct {
	publisher uint16
	sequence  uint64 // counted by each publisher, from 0
	at        int64  // when the message was to be sent, in nanoseconds since the run began
	warmup    bool
}

const (
	sequenceBits = 48
	warmupBit    = 1 << 63
)

func (s stamp) put(payload []byte) {
	at := uint64(s.at)
	if s.warmup {
		at |= warmupBit
	}
	binary.LittleEndian.PutUint64(payload, uint64(s.publisher)<<sequenceBits|s.sequence)
	binary.LittleEndian.PutUint64(payload[8:], at)
}

// readStamp reads what put has written. ok is false when payload is too short to hold a stamp.
func readStamp(payload []byte) (s stamp, ok bool) {
	if len(payload) < MinSize {
		return stamp{}, false
	}
	who := binary.LittleEndian.Uint64(payload)
	at := binary.LittleEndian.Uint64(payload[8:])
	return stamp{
		publisher: uint16(who >> sequenceBits),
		sequence:  who & (1<<sequenceBits - 1),
		at:        int64(at &^ warmupBit),
		warmup:    at&warmupBit != 0,
	}, true
}
