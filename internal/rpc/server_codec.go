package rpc

import (
	"runtime"

	"google.golang.org/grpc/mem"
)

// requestFrame is a received PublishRequest, with requestRoom before it.
type requestFrame struct{ data []byte }

// serverCodec is rawCodec with requestFrames. Large messages are copied by half of the processors at most, so that many of
// them at once do not keep small ones waiting for theirs.
type serverCodec struct {
	rawCodec
	turns chan struct{}
}

// largeRequest is from how many bytes on a message takes long to copy: about 20 us.
const largeRequest = 64 << 10

func newServerCodec() serverCodec {
	return serverCodec{newRawCodec(), make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// Unmarshal implements encoding.CodecV2.
func (c serverCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if data.Len() > largeRequest {
		inflating.beginCopy()
		defer inflating.endCopy()
		c.turns <- struct{}{}
		defer func() { <-c.turns }()
	}
	f, ok := v.(*requestFrame)
	if !ok {
		return c.rawCodec.Unmarshal(data, v)
	}
	f.data = make([]byte, requestRoom+data.Len())
	data.CopyTo(f.data[requestRoom:])
	return nil
}
