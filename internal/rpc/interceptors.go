package rpc

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

const reflectionPrefix = "/grpc.reflection."

// guardStream is where every call comes by, see requestsLate for those that are no streams. It asks who may call, and recovers the
// panics of handlers, which gRPC does not: one odd request would end the broker. They become a status and a log line with the stack.
func (s *Server) guardStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer s.calls.start(info.FullMethod)(&err)
	defer s.recover(info.FullMethod, &err)
	observed := &observedStream{stream, inCallOf(stream.Context()), stream.Context()}
	defer observed.in.end()
	session, err := s.access.admit(observed.ctx, info.FullMethod)
	if err != nil {
		s.logRefusal(observed.ctx, info.FullMethod, err)
		return toStatus(err)
	}
	if session != nil {
		defer s.access.dismiss(session)
		observed.ctx = context.WithValue(observed.ctx, sessionKey{}, session)
	}
	call := func() error { return handler(srv, observed) }
	switch {
	case strings.HasPrefix(info.FullMethod, reflectionPrefix), info.FullMethod == tinybrokerv1.AdminService_Watch_FullMethodName:
		err = s.untilEnded(session, call)
	case rules[info.FullMethod] == anyone:
		err = s.atOnce(call)
	default:
		err = call()
	}
	return s.toStatus(info.FullMethod, err)
}

// logRefusal tells the operator who knocks at the door.
func (s *Server) logRefusal(ctx context.Context, method string, err error) {
	if s.lines.refusals.allow(s.log) {
		s.log.Warn("call refused", "method", method, "peer", peerOf(ctx), "why", err.Error())
	}
}

// observedStream is the stream of a call that was let in: its context leads to the session. It tells when a request has been dealt with: at
// the latest when the next one is asked for.
type observedStream struct {
	grpc.ServerStream
	in  *inCall
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *observedStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *observedStream) RecvMsg(m any) error {
	s.in.settle()
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.in.given()
	}
	return err
}

// untilEnded runs a handler that would keep its stream open for as long as the client does: one that is not ours, or that sends to who may not
// read. The return of the call ends the stream, and with it the handler.
func (s *Server) untilEnded(session *session, call func() error) error {
	ended := make(chan error, 1)
	s.loops.Go(func() { ended <- s.guarded(call) })
	select {
	case err := <-ended:
		return err
	case <-s.broker.Draining():
		return core.ErrDraining
	case <-session.ended():
		return session.why()
	}
}

// atOnce runs the handler of a method that anyone may call: who says nothing is not waited for, whoever it is.
func (s *Server) atOnce(call func() error) error {
	ended := make(chan error, 1)
	s.loops.Go(func() { ended <- s.guarded(call) })
	timeout := time.NewTimer(s.options.times.open)
	defer timeout.Stop()
	select {
	case err := <-ended:
		return err
	case <-timeout.C:
		return fmt.Errorf("%w: no request within %s", core.ErrProtocol, s.options.times.open)
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
