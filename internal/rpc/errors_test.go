package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// wireCodes is the contract: code and reason of each of core's errors.
var wireCodes = map[error]struct {
	code   codes.Code
	reason string
	retry  bool
}{
	core.ErrTopicInvalid:    {codes.InvalidArgument, "TOPIC_INVALID", false},
	core.ErrPatternInvalid:  {codes.InvalidArgument, "PATTERN_INVALID", false},
	core.ErrProtocol:        {codes.InvalidArgument, "PROTOCOL", false},
	core.ErrMessageTooLarge: {codes.InvalidArgument, "MESSAGE_TOO_LARGE", false},
	core.ErrGroupConfig:     {codes.FailedPrecondition, "GROUP_CONFIG_MISMATCH", false},
	core.ErrGroupFull:       {codes.ResourceExhausted, "GROUP_FULL", true},
	core.ErrMemory:          {codes.ResourceExhausted, "BROKER_MEMORY", true},
	core.ErrQuota:           {codes.ResourceExhausted, "QUOTA", true},
	core.ErrDraining:        {codes.Unavailable, "DRAINING", true},
	core.ErrUnauthenticated: {codes.Unauthenticated, "UNAUTHENTICATED", false},
	core.ErrNotAllowed:      {codes.PermissionDenied, "PERMISSION_DENIED", false},
	core.ErrNotFound:        {codes.NotFound, "NOT_FOUND", false},
}

func TestErrorsSurviveTheRoundTrip(t *testing.T) {
	if len(wireCodes) != len(errorTable) {
		t.Errorf("%d errors in the contract, %d in the table", len(wireCodes), len(errorTable))
	}
	for sentinel, want := range wireCodes {
		t.Run(want.reason, func(t *testing.T) {
			sent := fmt.Errorf("%w: because", sentinel)
			// What a handler returns goes over the wire as its status.
			st := status.Convert(toStatus(sent))
			received := fromStatus(st.Err())
			if !errors.Is(received, sentinel) || received.Error() != sent.Error() {
				t.Errorf("sent %q, received %q", sent, received)
			}
			for other := range wireCodes {
				if other != sentinel && errors.Is(received, other) { //nolint:errorlint // these are the sentinels themselves
					t.Errorf("is %v as well", other)
				}
			}
			if got := status.Code(received); got != want.code {
				t.Errorf("code %v, want %v", got, want.code)
			}
			checkDetails(t, status.Convert(received), want.reason, want.retry)
			if code, reason := reasonOf(sent); code != want.code || reason != want.reason {
				t.Errorf("reasonOf: %v %q", code, reason)
			}
			failure := failureError(&tinybrokerv1.PublishFailure{Code: int32(want.code), Reason: want.reason, Text: "text"})
			if !errors.Is(failure, sentinel) || failure.Error() != "text" || status.Code(failure) != want.code {
				t.Errorf("as a failure of a stream: %v", failure)
			}
		})
	}
}

func checkDetails(t *testing.T, st *status.Status, reason string, retry bool) {
	t.Helper()
	var info *errdetails.ErrorInfo
	var retryInfo *errdetails.RetryInfo
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			retryInfo = d
		}
	}
	if info.GetReason() != reason || info.GetDomain() != "tinybroker" {
		t.Errorf("ErrorInfo %v", info)
	}
	if (retryInfo.GetRetryDelay().AsDuration() > 0) != retry {
		t.Errorf("RetryInfo %v", retryInfo)
	}
}

func TestToStatusOfOtherErrors(t *testing.T) {
	own := status.Error(codes.Unimplemented, "not here")
	for _, test := range []struct {
		name string
		err  error
		code codes.Code
		text string
	}{
		{"none", nil, codes.OK, ""},
		{"unknown", errors.New("secret path /etc/x"), codes.Internal, "internal error"},
		{"canceled", fmt.Errorf("waiting: %w", context.Canceled), codes.Canceled, "canceled"},
		{"deadline", context.DeadlineExceeded, codes.DeadlineExceeded, "deadline exceeded"},
		{"a status", own, codes.Unimplemented, "not here"},
	} {
		t.Run(test.name, func(t *testing.T) {
			st := status.Convert(toStatus(test.err))
			if st.Code() != test.code || st.Message() != test.text {
				t.Errorf("got %v %q", st.Code(), st.Message())
			}
		})
	}
}

func TestFromStatusOfOtherErrors(t *testing.T) {
	if err := fromStatus(nil); err != nil {
		t.Errorf("nil: %v", err)
	}
	if err := fromStatus(io.EOF); err != io.EOF { //nolint:errorlint // as it is
		t.Errorf("io.EOF: %v", err)
	}
	err := fromStatus(status.Error(codes.PermissionDenied, ""))
	var answered *Error
	if !errors.As(err, &answered) || answered.Code() != codes.PermissionDenied || err.Error() != "PermissionDenied" {
		t.Errorf("permission denied: %v", err)
	}
	if again := fromStatus(fmt.Errorf("publish: %w", err)); !errors.As(again, &answered) || again.Error() != "publish: PermissionDenied" {
		t.Errorf("converted twice: %v", again)
	}
	strange, _ := status.New(codes.NotFound, "x").WithDetails(&errdetails.ErrorInfo{Reason: "DRAINING", Domain: "example.org"})
	if err := fromStatus(strange.Err()); errors.Is(err, core.ErrDraining) {
		t.Error("somebody else's reason is taken for ours")
	}
}

func TestBoundText(t *testing.T) {
	long := strings.Repeat("x", maxText)
	for _, test := range []struct{ name, in, want string }{
		{"short", "topic \"ü\" is bad", "topic \"ü\" is bad"},
		{"just fits", long, long},
		{"too long", long + "y", long[:maxText-len("…")] + "…"},
		{"control characters", "a\x1b[31m\nb\x00\u0085", `a\x1b[31m\nb\x00\u0085`},
		{"not UTF-8", "a\xffb", "a\ufffdb"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := boundText(test.in); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	for _, in := range []string{strings.Repeat("ü", 2000), strings.Repeat("\x00", 2000), strings.Repeat("\xff", 2000)} {
		got := boundText(in)
		if len(got) > maxText || !utf8.ValidString(got) || len(got) < maxText-8 {
			t.Errorf("%d bytes of %.8q gave %d bytes", len(in), in, len(got))
		}
	}
}
