package main

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// The ranges of the flags are those of core, at both ends.
func TestRangesAreThoseOfCore(t *testing.T) {
	bounds := map[string]func(*core.Options) int64{
		"consumer-capacity":       func(o *core.Options) int64 { return int64(o.ConsumerCapacity) },
		"consumer-capacity-bytes": func(o *core.Options) int64 { return o.ConsumerCapacityBytes },
		"group-capacity":          func(o *core.Options) int64 { return int64(o.GroupCapacity) },
		"group-capacity-bytes":    func(o *core.Options) int64 { return o.GroupCapacityBytes },
		"group-linger":            func(o *core.Options) int64 { return int64(o.GroupLinger) },
		"ack-deadline":            func(o *core.Options) int64 { return int64(o.AckDeadline) },
		"max-attempts":            func(o *core.Options) int64 { return int64(o.MaxAttempts) },
		"max-in-flight":           func(o *core.Options) int64 { return int64(o.MaxInFlight) },
		"max-message-size":        func(o *core.Options) int64 { return int64(o.MaxMessageSize) },
		"max-memory":              func(o *core.Options) int64 { return o.MaxMemory },
		"max-subscriptions":       func(o *core.Options) int64 { return int64(o.MaxSubscriptions) },
		"send-timeout":            func(o *core.Options) int64 { return int64(o.SendTimeout) },
	}
	for name, value := range bounds {
		for _, end := range []string{"min", "max"} {
			o := newServeOptions()
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.addFlags(fs)
			bound, unit := boundOf(t, fs.Lookup(name).Value, end)
			if err := fs.Set(name, fmt.Sprintf("%d%s", bound, unit)); err != nil {
				t.Errorf("--%s: %v", name, err)
				continue
			}
			if value(&o.broker) != bound {
				t.Errorf("--%s is %d, want %d", name, value(&o.broker), bound)
			}
			if err := o.broker.Validate(); err != nil {
				t.Errorf("--%s %s: core refuses it: %v", name, end, err)
			}
			out := bound - 1
			if end == "max" {
				out = bound + 1
			}
			if err := fs.Set(name, fmt.Sprintf("%d%s", out, unit)); err == nil {
				t.Errorf("--%s: %d%s is taken", name, out, unit)
			}
		}
	}
}

func boundOf(t *testing.T, v pflag.Value, end string) (int64, string) {
	pick := func(least, most int64) int64 {
		if end == "min" {
			return least
		}
		return most
	}
	switch v := v.(type) {
	case *wholeValue[int]:
		return pick(int64(v.min), int64(v.max)), ""
	case *sizeValue[int]:
		return pick(int64(v.min), int64(v.max)), ""
	case *sizeValue[int64]:
		return pick(v.min, v.max), ""
	case durationValue:
		return pick(int64(v.min), int64(v.max)), "ns"
	}
	t.Fatalf("no bounds for %T", v)
	return 0, ""
}

// The defaults of the flags are the documented ones, and the settings reach the options.
func TestServeOptions(t *testing.T) {
	cleanEnvironment(t)
	var got *serveOptions
	a := &app{streams: &streams{out: new(lockedBuffer), err: new(lockedBuffer)}}
	root := newRootCmd(a)
	serve := newServeCmd(a, func(_ context.Context, o *serveOptions) error {
		got = o
		return nil
	})
	for _, c := range root.Commands() {
		if c.Name() == "serve" {
			root.RemoveCommand(c)
		}
	}
	root.AddCommand(serve)
	root.SetArgs([]string{"serve"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	if got.broker != core.DefaultOptions() || got.server.Reflection != rpc.DefaultServerOptions().Reflection ||
		got.server.MaxConnections != rpc.DefaultServerOptions().MaxConnections || !slices.Equal(got.listen, []string{"127.0.0.1:7710"}) {
		t.Errorf("%+v", got)
	}
}
