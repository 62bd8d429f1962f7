package rpc

import (
	"context"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gRPC does not recover the panics of handlers: one odd request would end the broker. The guards turn them into a status
// and a log line with the stack.

func (s *Server) guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer s.recover(info.FullMethod, &err)
	resp, err = handler(ctx, req)
	return resp, toStatus(err)
}

func (s *Server) guardStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer s.recover(info.FullMethod, &err)
	return toStatus(handler(srv, stream))
}

func (s *Server) recover(method string, err *error) {
	if p := recover(); p != nil {
		s.log.Error("panic in a call", "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "internal error")
	}
}
