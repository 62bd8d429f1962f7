package rpc

import "google.golang.org/grpc/mem"

// reusedFrame is a received gRPC message as bytes. Receiving the next one into it overwrites the last.
type reusedFrame struct{ data []byte }

// clientCodec is rawCodec with reusedFrames.
type clientCodec struct{ rawCodec }

// keepBytes is the most room that a reusedFrame keeps. A larger frame holds one very large message, and few do.
const keepBytes = 1 << 20

// Unmarshal implements encoding.CodecV2.
func (c clientCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*reusedFrame)
	if !ok {
		return c.rawCodec.Unmarshal(data, v)
	}
	n := data.Len()
	if cap(f.data) < n || cap(f.data) > keepBytes {
		f.data = make([]byte, n)
	}
	f.data = f.data[:n]
	data.CopyTo(f.data)
	return nil
}
