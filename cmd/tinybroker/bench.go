package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/bench"
	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// benchDuration is how long a run takes when nothing else bounds it.
const benchDuration = 10 * time.Second

// benchOptions are the flags of bench.
type benchOptions struct {
	*clientOptions
	load     bench.Options
	ack      string
	output   string
	embedded bool
}

func newBenchOptions() *benchOptions {
	return &benchOptions{
		clientOptions: newClientOptions(),
		load: bench.Options{
			Publishers: 1, Subscribers: 1, Size: 128, Topics: 1,
			Duration: benchDuration, Warmup: time.Second, MaxWait: 30 * time.Second,
		},
		ack:    "explicit",
		output: "text",
	}
}

func (o *benchOptions) addFlags(fs *pflag.FlagSet) {
	l := &o.load
	fs.Var(whole(&l.Publishers, 1, 10_000), "pubs", "publishers, each on a connection of its own")
	fs.Var(whole(&l.Subscribers, 0, 10_000), "subs", "subscribers, each on a connection of its own; 0: only publish")
	fs.StringVarP(&l.Group, "group", "g", "", "`name` of a consumer group whose members all subscribers are (default: each gets everything)")
	fs.Var(choice(&o.ack, "explicit", "none"), "ack", "how members of the group acknowledge: explicit or none")
	fs.Var(whole(&l.MaxInFlight, 0, 1<<16), "max-in-flight", "unacknowledged messages of each member; 0: the broker's")
	fs.Var(size(&l.Size, bench.MinSize, 1<<30), "size", "size of each payload, of which 16 bytes are a sequence number and a time")
	fs.VarP(whole(&l.Messages, 1, math.MaxInt64), "msgs", "n", "publish this many messages, all publishers together, instead of --duration")
	fs.Var(span(&l.Duration, time.Millisecond, longest), "duration", "how long to publish")
	fs.VarP(rateValue{&l.Rate}, "rate", "r", "messages a second, all publishers together; 0: as fast as the broker takes them")
	fs.Var(span(&l.Warmup, 0, longest), "warmup", "how long to publish before measuring")
	fs.Var(whole(&l.Topics, 1, 10_000_000), "topics", "topics to publish to in turn")
	fs.Var(span(&l.MaxWait, 0, longest), "max-wait", "how long the broker may hold a publisher back before it evicts a slow subscriber; 0: not at all")
	addBool(fs, &o.embedded, "embedded", "", "start a broker with default settings for the run, on a free port, and stop it after; --server, and what is said of TLS and tokens, is not used")
	fs.VarP(choice(&o.output, "text", "json"), "output", "o", "`format`: text or json")
	o.clientOptions.addFlags(fs)
}

func newBenchCmd(a *app, runF func(context.Context, *benchOptions) error) *cobra.Command {
	o := newBenchOptions()
	if runF == nil {
		runF = func(ctx context.Context, o *benchOptions) error { return runBench(ctx, a, o) }
	}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a broker",
		Long: `Put load on a broker and measure how many messages a second get through and how
long each takes. Every message is decoded and handed to a function, as in a
real subscriber, and checked: what is lost, delivered twice, refused, or not
received since its subscriber was evicted, is reported, and the exit code is
then 75 for an eviction, that of the refusal for one (65 where messages are too
large, 75 where the broker has no room), else 1.

Latency is the time from when a message was to be sent until its subscriber has
it. With --rate that moment comes from the schedule, so that a stall counts for
every message that should have been sent meanwhile. Without it publishers run
flat out, and latency is mostly time spent in queues.

Topics have names of their own for each run, below "bench". Publishers and
subscribers share one process here, and one machine with an --embedded broker:
to measure a broker alone, run this elsewhere.`,
		Example: `  # a broker of its own, for ten seconds, flat out
  tinybroker bench --embedded

  # latency at a modest rate, to twenty subscribers
  tinybroker bench --subs 20 --rate 1000 --duration 5s

  # a consumer group of four that acknowledges each message
  tinybroker bench --subs 4 --group work --msgs 100000 -o json`,
		Args:        noArgs,
		Annotations: map[string]string{noteSection: sectionClient},
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := givenFlags(a, cmd.Flags())
			if err := settle("bench", cmd.Flags(), given, o.clashes(given)); err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			return runF(cmd.Context(), o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// clashes are the settings that do not go together.
func (o *benchOptions) clashes(given map[string]bool) []clash {
	list := []clash{{flag: "msgs", with: []string{"duration"}, equal: true, text: "--msgs and --duration exclude each other",
		found: func() bool { return given["msgs"] && given["duration"] }}}
	for _, name := range []string{"ack", "max-in-flight"} {
		list = append(list, clash{flag: name, text: "--ack and --max-in-flight are for the members of a --group",
			found: func() bool { return o.load.Group == "" && given[name] }})
	}
	return list
}

func (o *benchOptions) validate() error {
	l := &o.load
	if l.Messages > 0 {
		l.Duration = 0
	}
	if l.Group != "" {
		if err := core.ValidateGroupName(l.Group); err != nil {
			return badName("bench", "group", err)
		}
	}
	l.Ack = map[string]core.AckMode{"explicit": core.AckExplicit, "none": core.AckNone}[o.ack]
	if err := l.Validate(); err != nil {
		return usagef("bench: %w", err)
	}
	return nil
}

func runBench(ctx context.Context, a *app, o *benchOptions) (err error) {
	if o.embedded {
		stop, err := o.embed(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	n := o.notices(a.streams)
	if isTerminal(a.err) && !o.quiet {
		o.load.Progress = func(p bench.Progress) { n.show(progressLine(p)) }
	}
	result, err := bench.Run(ctx, o.load, func(ctx context.Context) (*rpc.Client, error) { return o.dial(ctx, n, new(link)) })
	n.clear()
	if err != nil {
		return o.benchError(ctx, err)
	}
	report := newBenchReport(o, result)
	if err := a.report(ctx, func(w io.Writer) error { return report.write(w, o.output == "json") }); err != nil {
		return err
	}
	return benchFailure(result)
}

// embed starts a broker for this run alone.
func (o *benchOptions) embed(ctx context.Context) (stop func(), err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, failf(exitOther, "bench: --embedded: %w", err)
	}
	broker, err := bench.StartBroker(ctx, program, "--config", "none")
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, failf(exitUnavailable, "bench: --embedded: %w", err)
	}
	o.server, o.security = broker.Address, clientSecurity{}
	return func() { _ = broker.Close() }, nil // what the run has found counts
}

// benchError says why there is no result.
func (o *benchOptions) benchError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if known, ok := errors.AsType[*exitError](err); ok {
		return known // the dialling has found the words
	}
	return fmt.Errorf("bench: %w", err)
}

// benchFailure is the error of a run in which messages went wrong; the report has the details.
func benchFailure(r *bench.Result) error {
	switch {
	case r.Clean():
		return nil
	case r.Evicted > 0:
		return failf(exitRetry, "bench: %s evicted, %s lost; raise --max-wait, or lower the load",
			count(uint64(r.Evicted), "subscriber"), count(uint64(r.Lost), "message"))
	case r.Refused > 0:
		code := codeOf(r.Refusal)
		if code == exitOther {
			code = exitRetry
		}
		return failf(code, "bench: %s refused: %w", count(uint64(r.Refused), "message"), r.Refusal)
	}
	return failf(exitOther, "bench: %s lost, %d duplicated, %d foreign",
		count(uint64(r.Lost), "message"), r.Duplicated, r.Foreign)
}
