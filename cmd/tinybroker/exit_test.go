package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"nothing", nil, 0},
		{"anything", errors.New("x"), 1},
		{"usage", usagef("x"), 64},
		{"usage inside", fmt.Errorf("pub: %w", usagef("x")), 64},
		{"topic", fmt.Errorf("x: %w", core.ErrTopicInvalid), 64},
		{"pattern", core.ErrPatternInvalid, 64},
		{"too large", core.ErrMessageTooLarge, 65},
		{"input file", failf(exitNoInput, "x"), 66},
		{"unreachable", &rpc.UnreachableError{Target: "x", Err: errors.New("y")}, 69},
		{"draining", core.ErrDraining, 69},
		{"no answer in time", context.DeadlineExceeded, 69},
		{"stdout full", &writeError{&os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}}, 74},
		{"reader gone", &writeError{&os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}}, 141},
		{"reader gone, noticed", &writeError{errReaderGone}, 141},
		{"evicted", &core.EndedError{Ending: core.Ending{Reason: core.EndEvicted}}, 75},
		{"stalled", &core.EndedError{Ending: core.Ending{Reason: core.EndStalled}}, 75},
		{"replaced", &core.EndedError{Ending: core.Ending{Reason: core.EndReplaced}}, 1},
		{"revoked", &core.EndedError{Ending: core.Ending{Reason: core.EndRevoked}}, 77},
		{"memory", core.ErrMemory, 75},
		{"group full", core.ErrGroupFull, 75},
		{"quota", core.ErrQuota, 75},
		{"interrupted", &signalError{os.Interrupt}, 130},
		{"terminated, in words", fmt.Errorf("%w: 1 confirmed", &interruptedError{&signalError{syscall.SIGTERM}}), 143},
		{"several of the configuration", mistakes{errors.New("a"), errors.New("b")}.asConfigError(), 78},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestEveryCodeIsDocumented(t *testing.T) {
	documented := map[int]bool{}
	last := -1
	for _, c := range exitCodes {
		documented[c.code] = true
		if c.code <= last {
			t.Errorf("%d comes after %d", c.code, last)
		}
		last = c.code
	}
	for _, code := range []int{exitOK, exitOther, exitUsage, exitInput, exitNoInput, exitUnavailable, exitIO, exitRetry, exitVersion, exitAuth, exitConfig, exitShort, exitPipe, 130, 143} {
		if !documented[code] {
			t.Errorf("%d is not documented", code)
		}
	}
}

func TestEndWith(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		want   string
		signal os.Signal
	}{
		{"nothing", nil, "", nil},
		{"one line", errors.New("a:\nb"), "tinybroker: a: b\n", nil},
		{"hint", withHint(errors.New("a"), "try b"), "tinybroker: a\nhint: try b\n", nil},
		{"several", mistakes{errors.New("a"), mistakes{errors.New("b"), errors.New("c")}.asConfigError()}.asConfigError(),
			"tinybroker: a\ntinybroker: b\ntinybroker: c\n", nil},
		{"signal", &signalError{os.Interrupt}, "", os.Interrupt},
		{"signal with words", fmt.Errorf("%w: 1 confirmed", &interruptedError{&signalError{os.Interrupt}}), "tinybroker: interrupted: 1 confirmed\n", os.Interrupt},
		{"reader gone", &writeError{errReaderGone}, "", syscall.SIGPIPE},
		{"escapes", errors.New("bad \x1b[2J"), "tinybroker: bad \\x1b[2J\n", nil},
	} {
		var stderr bytes.Buffer
		end := endWith(c.err, &streams{err: &stderr})
		if stderr.String() != c.want || end.signal != c.signal || end.code != codeOf(c.err) {
			t.Errorf("%s: %q, %+v", c.name, stderr.String(), end)
		}
	}
}

// untouched fails the test when it is read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("standard input is read")
	return 0, io.EOF
}

func TestPayloadLeavesStdinAlone(t *testing.T) {
	cleanEnvironment(t)
	b := startBroker(t)
	for _, args := range [][]string{{"x", "y"}, {"x", ""}, {"x", "-f", "exit_test.go"}} {
		var out, errOut bytes.Buffer
		end := run(append([]string{"pub", "-s", b.address}, args...), &streams{in: untouched{t}, out: &out, err: &errOut})
		if end.code != 0 || errOut.Len() > 0 {
			t.Errorf("%q: %d, %q", args, end.code, errOut.String())
		}
	}
	if !strings.Contains(b.status(), `"published_messages":3,`) {
		t.Error(b.status())
	}
}
