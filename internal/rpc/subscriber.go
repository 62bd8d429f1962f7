package rpc

import "codeberg.org/tinybroker/tinybroker/internal/core"

// Delivery is one message as a subscription receives it.
type Delivery struct {
	core.Message
	Sequence      uint64
	Attempt       uint32
	DroppedBefore uint64
	More          bool
}
