package rpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	pb "google.golang.org/protobuf/proto"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// rawFrame is a gRPC message as bytes. Sent or received in place of a generated type, it passes the codec untouched.
type rawFrame struct {
	// bufs is what to send. The transport reads it after SendMsg has returned: neither the slice nor what it refers to may be changed again.
	bufs mem.BufferSlice
	// data is what was received, in one piece. It belongs to the receiver.
	data []byte
	// most is how many bytes may be received; 0: as many as gRPC hands over. What is longer is not copied: size says how long it is, and data is empty.
	most, size int
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
		if f.size = data.Len(); f.most == 0 || f.size <= f.most {
			f.data = data.Materialize()
		}
		return nil
	}
	return c.proto.Unmarshal(data, v)
}

// sendPlain has what is sent on a call stay uncompressed: what is compressed is in the transport's own buffers, of which nobody learns when they are
// written. It comes before anything is sent. The error is what to end the call with, whose stream is gone.
func sendPlain(ctx context.Context) error {
	// gRPC compresses only where the requests are. Elsewhere it would spend a header on saying that nothing is.
	if s, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string }); ok && s.RecvCompress() == "" {
		return nil
	}
	if grpc.SetSendCompressor(ctx, encoding.Identity) != nil {
		return context.Canceled
	}
	return nil
}

// The most bytes of a request that is no publish. What is legal is much shorter: gRPC hands over sixteen megabytes, inflated from as many kilobytes,
// and more than one service answers with what it was asked, or keeps it.
const (
	maxSubscriberRequest = 1 << 20  // 65 536 deliveries, every other one of them acknowledged, take up to 800 KiB
	maxOtherRequest      = 16 << 10 // of the services beside BrokerService
)

// receiveRequest reads the next request of a stream that is no publish, of at most limit bytes.
func receiveRequest(stream grpc.ServerStream, limit int) ([]byte, error) {
	frame := rawFrame{most: limit}
	if err := stream.RecvMsg(&frame); err != nil {
		return nil, err
	}
	if frame.size > limit {
		return nil, fmt.Errorf("%w: a request of %d bytes, the most is %d", core.ErrProtocol, frame.size, limit)
	}
	return frame.data, nil
}

// receive reads the next request into m. Where the codec did it, gRPC itself would answer what is not valid protobuf, with INTERNAL.
func receive(stream grpc.ServerStream, m pb.Message) error {
	frame, err := receiveRequest(stream, maxOtherRequest)
	if err != nil {
		return err
	}
	if pb.Unmarshal(frame, m) != nil {
		return errMalformed
	}
	return nil
}
