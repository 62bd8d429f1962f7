package rpc

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

const reflectionPrefix = "/grpc.reflection."

// gRPC does not recover the panics of handlers: one odd request would end the broker. The guards turn them into a status
// and a log line with the stack.

func (s *Server) guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer s.calls.start(info.FullMethod)(&err)
	defer s.recover(info.FullMethod, &err)
	call := inCallOf(ctx)
	call.given()
	defer call.end()
	resp, err = handler(ctx, req)
	return resp, s.toStatus(info.FullMethod, err)
}

func (s *Server) guardStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer s.calls.start(info.FullMethod)(&err)
	defer s.recover(info.FullMethod, &err)
	observed := &observedStream{stream, inCallOf(stream.Context())}
	defer observed.in.end()
	call := func() error { return handler(srv, observed) }
	if strings.HasPrefix(info.FullMethod, reflectionPrefix) {
		err = s.untilDraining(observed.in, call)
	} else {
		err = call()
	}
	return s.toStatus(info.FullMethod, err)
}

// observedStream tells when a request has been dealt with: at the latest when the next one is asked for.
type observedStream struct {
	grpc.ServerStream
	in *inCall
}

// RecvMsg implements grpc.ServerStream.
func (s *observedStream) RecvMsg(m any) error {
	s.in.settle()
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.in.given()
	}
	return err
}

// untilDraining runs a handler that is not ours and would keep its stream open for as long as the client does. The
// return of the call ends the stream, and with it the handler.
func (s *Server) untilDraining(in *inCall, call func() error) error {
	ended := make(chan error, 1)
	s.loops.Go(func() { ended <- s.guarded(call) })
	select {
	case err := <-ended:
		return err
	case <-in.refusal():
		return errInbound
	case <-s.broker.Draining():
		return core.ErrDraining
	}
}

// guarded calls f and turns a panic into an error, for goroutines that the interceptors do not see.
func (s *Server) guarded(f func() error) (err error) {
	defer s.recover("goroutine of a call", &err)
	return f()
}

func (s *Server) recover(method string, err *error) {
	if p := recover(); p != nil {
		s.log.Error("panic in a call", "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "internal error")
	}
}

// toStatus makes a handler's error fit for the wire. What is neither the broker's, nor a status, nor the end of the call's
// context is a defect: the client learns only that there is one, the log tells which.
func (s *Server) toStatus(method string, err error) error {
	_, reason := reasonOf(err)
	_, isStatus := status.FromError(err)
	if err != nil && reason == "" && !isStatus && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		s.log.Error("call failed", "method", method, "error", err)
	}
	return toStatus(err)
}
