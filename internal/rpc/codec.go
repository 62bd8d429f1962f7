package rpc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	pb "google.golang.org/protobuf/proto"
)

// rawFrame is a gRPC message as bytes. Sent or received in place of a generated type, it passes the codec untouched.
type rawFrame struct {
	// bufs is what to send. The transport reads it after SendMsg has returned: neither the slice nor what it refers to may be changed again.
	bufs mem.BufferSlice
	// data is what was received, in one piece. It belongs to the receiver.
	data []byte
}

// rawCodec lets rawFrames through and leaves every other type to protobuf.
type rawCodec struct{ proto encoding.CodecV2 }

func newRawCodec() rawCodec { return rawCodec{encoding.GetCodecV2(proto.Name)} }

// Name implements encoding.CodecV2. On the wire a raw frame is protobuf like any other.
func (rawCodec) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2.
func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*rawFrame); ok {
		return f.bufs, nil
	}
	return c.proto.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. The transport's buffers go back to their pool, so the bytes are copied, once.
func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*rawFrame); ok {
		f.data = data.Materialize()
		return nil
	}
	return c.proto.Unmarshal(data, v)
}

// receive reads the next request of a stream into m. Where the codec did it, gRPC itself would answer what is not valid
// protobuf, with INTERNAL.
func receive(stream grpc.ServerStream, m pb.Message) error {
	var frame rawFrame
	if err := stream.RecvMsg(&frame); err != nil {
		return err
	}
	if err := pb.Unmarshal(frame.data, m); err != nil {
		return errMalformed
	}
	return nil
}
