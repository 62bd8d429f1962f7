package rpc

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// errorDomain is the domain of every google.rpc.ErrorInfo.
const errorDomain = "tinybroker"

// retryAfter is what google.rpc.RetryInfo advises where trying again may help.
const retryAfter = time.Second

// errorTable tells core's errors across the wire, both ways.
var errorTable = []struct {
	err    error
	code   codes.Code
	reason string
}{
	{core.ErrTopicInvalid, codes.InvalidArgument, "TOPIC_INVALID"},
	{core.ErrPatternInvalid, codes.InvalidArgument, "PATTERN_INVALID"},
	{core.ErrMessageTooLarge, codes.InvalidArgument, "MESSAGE_TOO_LARGE"},
	{core.ErrProtocol, codes.InvalidArgument, "PROTOCOL"},
	{core.ErrGroupConfig, codes.FailedPrecondition, "GROUP_CONFIG_MISMATCH"},
	{core.ErrGroupFull, codes.ResourceExhausted, "GROUP_FULL"},
	{core.ErrMemory, codes.ResourceExhausted, "BROKER_MEMORY"},
	{core.ErrQuota, codes.ResourceExhausted, "QUOTA"},
	{core.ErrDraining, codes.Unavailable, "DRAINING"},
	{core.ErrUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED"},
	{core.ErrNotAllowed, codes.PermissionDenied, "PERMISSION_DENIED"},
	{core.ErrNotFound, codes.NotFound, "NOT_FOUND"},
}

// reasonOf returns the code and the stable reason that err is told with; codes.Internal and no reason when it is none of
// core's errors.
func reasonOf(err error) (codes.Code, string) {
	for _, e := range errorTable {
		if errors.Is(err, e.err) {
			return e.code, e.reason
		}
	}
	return codes.Internal, ""
}

// sentinelOf is the reverse of reasonOf; nil when there is no such error.
func sentinelOf(reason string) error {
	for _, e := range errorTable {
		if e.reason == reason {
			return e.err
		}
	}
	return nil
}

// toStatus makes err fit to be returned by a handler. What is none of core's errors shows as a bare Internal: the
// caller has to log it. A nil error stays nil and a status stays as it is.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	code, reason := reasonOf(err)
	if reason == "" {
		return foreignStatus(err)
	}
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: errorDomain}}
	if code == codes.ResourceExhausted || code == codes.Unavailable {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
	}
	st := status.New(code, boundText(err.Error()))
	if full, failed := st.WithDetails(details...); failed == nil {
		st = full
	}
	return st.Err()
}

// failureError is why the broker refused a message of a publish stream.
func failureError(f *tinybrokerv1.PublishFailure) error {
	st := status.New(codes.Code(f.GetCode()), f.GetText())
	if full, err := st.WithDetails(&errdetails.ErrorInfo{Reason: f.GetReason(), Domain: errorDomain}); err == nil {
		st = full
	}
	return &Error{st: st, cause: sentinelOf(f.GetReason())}
}

func foreignStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "canceled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "deadline exceeded")
	}
	return status.Error(codes.Internal, "internal error")
}

// Error is an error the broker answered with. errors.Is finds core's error in it; status.FromError finds the gRPC status. A call that ended
// since its own context did is told in it too: errors.Is then finds the context's error.
type Error struct {
	st    *status.Status
	cause error // may be nil
}

// Error returns the broker's text.
func (e *Error) Error() string {
	if text := e.st.Message(); text != "" {
		return text
	}
	return e.st.Code().String()
}

// Unwrap returns core's error, or that of the context of the call; nil for a status that is none of them.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus returns the status as it came.
func (e *Error) GRPCStatus() *status.Status { return e.st }

// Code is the code of the status.
func (e *Error) Code() codes.Code { return e.st.Code() }

// fromStatus turns what a call returned into an *Error; nil and errors that are no status (io.EOF) stay as they are.
func fromStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, known := errors.AsType[*Error](err); known {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	return &Error{st: st, cause: causeOf(st)}
}

func causeOf(st *status.Status) error {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == errorDomain {
			if err := sentinelOf(info.GetReason()); err != nil {
				return err
			}
		}
	}
	if st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "larger than max") {
		// A message too large for the broker's transport: gRPC has answered before the broker could.
		return core.ErrMessageTooLarge
	}
	return nil
}
