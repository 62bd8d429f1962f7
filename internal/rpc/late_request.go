package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// requestsLate returns the description of a service with its unary methods as streams of one request and one response. On the wire they are
// the same. But gRPC reads the request of a unary method before it asks an interceptor: a caller without a credential could
// have the server hold megabytes. Here the request is read when the handler asks for it. unary gets the full names of those methods.
func requestsLate(d *grpc.ServiceDesc, unary map[string]bool) *grpc.ServiceDesc {
	streams := append([]grpc.StreamDesc(nil), d.Streams...)
	for _, m := range d.Methods {
		unary["/"+d.ServiceName+"/"+m.MethodName] = true
		// gRPC would not ask the interceptor about a stream of one request and one response.
		streams = append(streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: handleLate(m), ServerStreams: true})
	}
	late := *d
	late.Methods, late.Streams = nil, streams
	return &late
}

// refuseUnary is for a service that is registered without requestsLate: nobody may call it.
func refuseUnary(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
	return nil, toStatus(errNoRule)
}

func handleLate(m grpc.MethodDesc) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		response, err := m.Handler(srv, stream.Context(), stream.RecvMsg, nil)
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: the request side was closed without a request", core.ErrProtocol)
		}
		if err != nil {
			return err
		}
		return sendAnswer(stream, response)
	}
}

// sendAnswer sends the only response of a call.
func sendAnswer(stream grpc.ServerStream, response any) error {
	encoded, err := proto.Marshal(response.(proto.Message))
	if err != nil {
		return err
	}
	bufs := mem.BufferSlice{mem.SliceBuffer(encoded)}
	if call := inCallOf(stream.Context()); call != nil {
		if err := sendPlain(stream.Context()); err != nil {
			return err
		}
		bufs = append(bufs, call.answers())
	}
	return stream.SendMsg(&rawFrame{bufs: bufs})
}
