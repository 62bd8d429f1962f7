package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// The exit codes, after sysexits.h, timeout(1) and the shell's 128 + signal.
const (
	exitOK          = 0
	exitOther       = 1
	exitUsage       = 64
	exitInput       = 65
	exitNoInput     = 66
	exitUnavailable = 69
	exitIO          = 74
	exitRetry       = 75
	exitVersion     = 76
	exitAuth        = 77
	exitConfig      = 78
	exitShort       = 124
	exitPipe        = 141
)

// exitCodes is the table of `tinybroker help exit-codes`.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "success; for serve also a stop by SIGTERM or SIGINT"},
	{exitOther, "any other failure"},
	{exitUsage, "wrong usage: an unknown flag, a bad value, topic, pattern, group setting"},
	{exitInput, "bad input: framing, JSON, a template, or a message that is too large"},
	{exitNoInput, "an input file cannot be read"},
	{exitUnavailable, "no broker there, or lost for good; serve: the address is taken or missing"},
	{exitIO, "writing to standard output or to a file failed"},
	{exitRetry, "try again later: evicted, or the broker has no room"},
	{exitVersion, "the broker does not know the request: its version differs"},
	{exitAuth, "not authenticated or not allowed"},
	{exitConfig, "the configuration is wrong"},
	{exitShort, "--for or --idle ended before --count messages came"},
	{128 + int(syscall.SIGHUP), "ended by SIGHUP: the terminal has gone"},
	{128 + int(syscall.SIGINT), "ended by SIGINT (Ctrl-C)"},
	{exitPipe, "ended by SIGPIPE: the reader of standard output has gone"},
	{128 + int(syscall.SIGTERM), "ended by SIGTERM"},
}

// exitError is an error that knows its exit code. An error that ends the program without one is classified by what it
// wraps; see codeOf.
type exitError struct {
	code int
	err  error
	hint string // a second line that says what to do; may be empty
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func failf(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

func usagef(format string, args ...any) error { return failf(exitUsage, format, args...) }

func withHint(err error, hint string) error {
	return &exitError{code: codeOf(err), err: err, hint: hint}
}

// signalError is the end by a signal. What wraps it may have something to say.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string { return e.signal.String() }

func (e *signalError) code() int {
	if s, ok := e.signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return exitOther
}

// writeError is a failure to write data to standard output.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write standard output: " + rootCause(e.err) }
func (e *writeError) Unwrap() error { return e.err }

// codeOf is the one place that turns errors into exit codes. The order matters: the innermost decision wins.
func codeOf(err error) int {
	var (
		known   *exitError
		sig     *signalError
		write   *writeError
		ended   *core.EndedError
		refused *rpc.Error
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &sig):
		return sig.code()
	case errors.As(err, &known):
		return known.code
	case errors.As(err, &write):
		if errors.Is(write.err, syscall.EPIPE) {
			return exitPipe
		}
		return exitIO
	case errors.As(err, &ended):
		return codeOfEnding(ended.Reason)
	}
	for _, c := range sentinelCodes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	if isUnreachable(err) {
		return exitUnavailable
	}
	if errors.As(err, &refused) {
		return codeOfStatus(refused.Code())
	}
	return exitOther
}

var sentinelCodes = []struct {
	err  error
	code int
}{
	{core.ErrTopicInvalid, exitUsage},
	{core.ErrPatternInvalid, exitUsage},
	{core.ErrMessageTooLarge, exitInput},
	{core.ErrProtocol, exitUsage},
	{core.ErrGroupConfig, exitUsage},
	{core.ErrMemory, exitRetry},
	{core.ErrGroupFull, exitRetry},
	{core.ErrQuota, exitRetry},
	{core.ErrDraining, exitUnavailable},
}

func codeOfEnding(r core.EndReason) int {
	switch r {
	case core.EndEvicted, core.EndStalled:
		return exitRetry
	case core.EndShuttingDown:
		return exitUnavailable
	case core.EndRevoked:
		return exitAuth
	}
	return exitOther
}

func codeOfStatus(c codes.Code) int {
	switch c {
	case codes.Unavailable, codes.DeadlineExceeded:
		return exitUnavailable
	case codes.ResourceExhausted:
		return exitRetry
	case codes.Unimplemented:
		return exitVersion
	case codes.Unauthenticated, codes.PermissionDenied:
		return exitAuth
	case codes.InvalidArgument, codes.OutOfRange:
		return exitUsage
	}
	return exitOther
}

// isForeign reports whether what answered is no gRPC server at all, and no proxy that misses the broker. gRPC makes a status of its own of such an
// answer.
func isForeign(e *rpc.Error) bool {
	return e.Code() != codes.Unavailable && (strings.Contains(e.Error(), "unexpected HTTP status code") || strings.Contains(e.Error(), "unexpected content-type"))
}

func isUnreachable(err error) bool {
	var (
		u *rpc.UnreachableError
		e *rpc.Error
	)
	return errors.As(err, &u) || errors.As(err, &e) && isForeign(e) || errors.Is(err, context.DeadlineExceeded)
}

// ending is how the program ends: with an exit code, or by a signal that it sends to itself.
type ending struct {
	code   int
	signal os.Signal // nil: none
}

// endWith prints what there is to say about err, one line for each error joined in it, and returns how to end.
func endWith(err error, s *streams) ending {
	end := ending{code: codeOf(err)}
	if end.code == exitPipe {
		end.signal = syscall.SIGPIPE
		return end // the reader has gone on purpose: nothing to say
	}
	if sig, ok := errors.AsType[*signalError](err); ok {
		end.signal = sig.signal
	}
	if err == nil || isSilent(err) {
		return end
	}
	var text strings.Builder
	for _, line := range errorLines(err) {
		fmt.Fprintln(&text, "tinybroker: "+oneLine(line))
	}
	if hint := hintOf(err); hint != "" {
		fmt.Fprintln(&text, "hint: "+oneLine(hint))
	}
	say := func() { _, _ = io.WriteString(s.err, text.String()) } // nobody could be told of a failure
	if end.signal != nil {
		within(writePatience, say)
	} else {
		say()
	}
	return end
}

// hintOf is what to do about err; empty: there is no advice.
func hintOf(err error) string {
	for known, ok := errors.AsType[*exitError](err); ok; known, ok = errors.AsType[*exitError](known.err) {
		if known.hint != "" {
			return known.hint
		}
	}
	switch {
	case errors.Is(err, core.ErrTopicInvalid):
		return "a topic is words with dots between them, such as deploy.rollout; patterns are for sub"
	case errors.Is(err, core.ErrPatternInvalid):
		return "patterns are like orders.created, orders.*, orders.**, orders.{eu,us}; see tinybroker sub --help"
	case errors.Is(err, core.ErrUnauthenticated):
		return "--token-file, or --tls-cert with --tls-key, says who calls; the broker's auth file has to know it"
	case errors.Is(err, core.ErrNotAllowed):
		return "the broker's auth file says what each identity may do"
	}
	return ""
}

// isSilent reports whether err is a signal and nothing more: whoever sent it knows.
func isSilent(err error) bool {
	_, bare := err.(*signalError) //nolint:errorlint // one that is wrapped has something to say
	return bare
}

// mistakes are several errors, to be told at once and each on its own line.
type mistakes []error

func (m mistakes) Error() string   { return errors.Join(m...).Error() }
func (m mistakes) Unwrap() []error { return m }

// asConfigError is the failure by mistakes in the configuration; nil when there are none. What time may mend by itself is none, if that is
// all there is.
func (m mistakes) asConfigError() error {
	if len(m) == 0 {
		return nil
	}
	if !slices.ContainsFunc(m, func(err error) bool { return codeOf(err) != exitUnavailable }) {
		return &exitError{code: exitUnavailable, err: m}
	}
	return &exitError{code: exitConfig, err: m}
}

// errorLines is what to print of err.
func errorLines(err error) []string {
	if list, ok := errors.AsType[mistakes](err); ok {
		var lines []string
		for _, e := range list {
			lines = append(lines, errorLines(e)...)
		}
		return lines
	}
	if answered, ok := errors.AsType[*rpc.Error](err); ok && isForeign(answered) {
		return []string{"what answers there is not a broker: " + err.Error()}
	}
	return []string{err.Error()}
}

// rootCause is the text of the innermost error: "no space left on device" instead of "write /dev/stdout: …".
func rootCause(err error) string {
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return lookup.Err
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return strings.TrimSpace(err.Error())
		}
		err = inner
	}
}
