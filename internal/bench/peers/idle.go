package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

const (
	idleSubscriptions = 20_000
	idleConnections   = 20
	idleTime          = 10 * time.Second
	// quietTime is for what opening has used to go back to the system: tinybroker gives it back once, when it has been quiet for a while.
	quietTime = 25 * time.Second
	// clockTicks is what Linux counts processor time in, a second.
	clockTicks = 100
)

// idleFigures measures a server before and after its subscriptions are opened: KiB for each of them, and the processor time that
// they then take, in percent of a core.
func idleFigures(ctx context.Context, s *settings, pid int, subscribe func(connection, subscriptions int) error) ([]float64, error) {
	before, err := residentKiB(pid)
	if err != nil {
		return nil, err
	}
	each := max(1, int(idleSubscriptions*s.scale)/idleConnections)
	for c := range idleConnections {
		if err := subscribe(c, each); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, quietTime); err != nil {
		return nil, err
	}
	after, err := residentKiB(pid)
	if err != nil {
		return nil, err
	}
	ticks, err := processorTicks(pid)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, idleTime); err != nil {
		return nil, err
	}
	later, err := processorTicks(pid)
	if err != nil {
		return nil, err
	}
	percent := float64(later-ticks) / clockTicks / idleTime.Seconds() * 100
	return []float64{float64(after-before) / float64(each*idleConnections), percent}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func tinyIdle(ctx context.Context, s *settings) (values []float64, err error) {
	t, err := s.newTiny(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	return idleFigures(ctx, s, t.pid, func(connection, subscriptions int) error {
		c, err := t.dial()
		if err != nil {
			return err
		}
		for i := range subscriptions {
			o := rpc.SubscribeOptions{Patterns: []string{fmt.Sprintf("idle.%d.%d", connection, i)}}
			if err := t.subscribe(c, o, func(*rpc.Delivery) error { return nil }); err != nil {
				return err
			}
		}
		return nil
	})
}

func natsIdle(ctx context.Context, s *settings) ([]float64, error) {
	n, err := s.newNATS(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.close()
	return idleFigures(ctx, s, n.pid, func(connection, subscriptions int) error {
		c, err := n.dial()
		if err != nil {
			return err
		}
		for i := range subscriptions {
			if _, err := c.Subscribe(fmt.Sprintf("idle.%d.%d", connection, i), func(*nats.Msg) {}); err != nil {
				return err
			}
		}
		return c.Flush()
	})
}

// residentKiB is the memory of a process that is in use, as Linux tells it.
func residentKiB(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.ParseInt(strings.Fields(value)[0], 10, 64)
		}
	}
	return 0, errors.New("the system does not tell")
}

// processorTicks is the processor time that a process has used.
func processorTicks(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return user + system, err
}
