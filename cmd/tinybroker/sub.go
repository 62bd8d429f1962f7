package main

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// subOptions are the flags and arguments of sub.
type subOptions struct {
	*clientOptions
	patterns []string

	id          string
	clientName  string
	output      string
	delimiter   string
	noDelimiter bool
	format      string
	count       int64
	idle        time.Duration
	forTime     time.Duration
	capacity    uint32
	overflow    string
	exitOnEvict bool
	readyFile   string

	group        string
	ack          string
	maxInFlight  int // 0: not asked for, as with the next two
	maxAttempts  int
	ackDeadline  time.Duration
	exec         string // the command; empty: messages are printed
	execParallel int
	grace        time.Duration

	given map[string]bool // the flags that were set, wherever
}

func newSubOptions() *subOptions {
	return &subOptions{
		clientOptions: newClientOptions(),
		clientName:    userAtHost(),
		output:        "auto",
		delimiter:     `\n`,
		ack:           "auto",
		execParallel:  1,
		grace:         10 * time.Second,
	}
}

var overflowPolicies = map[string]core.OverflowPolicy{
	"": core.OverflowDefault, "evict": core.OverflowEvict, "reject": core.OverflowReject, "drop-oldest": core.OverflowDropOldest, "drop-newest": core.OverflowDropNewest,
}

func (o *subOptions) addFlags(fs *pflag.FlagSet) {
	fs.VarP(choice(&o.output, "auto", "text", "raw", "json", "len", "hex", "base64"), "output", "o", "`format`: text, raw, json, len, hex, base64, or auto (text on a terminal, else raw)")
	fs.StringVarP(&o.delimiter, "delimiter", "d", o.delimiter, "`text` that ends each message of raw and --format output; knows \\n \\r \\t \\0 \\xNN")
	addBool(fs, &o.noDelimiter, "no-delimiter", "N", "nothing ends a message of raw and --format output")
	fs.StringVar(&o.format, "format", "", "Go `template` for each message, instead of --output")
	fs.VarP(whole(&o.count, 0, math.MaxInt64), "count", "n", "stop after this many messages; 0: never")
	fs.Var(span(&o.idle, 0, longest), "idle", "stop after this long without a message; 0: never")
	fs.Var(span(&o.forTime, 0, longest), "for", "stop after this long; 0: never")
	fs.StringVarP(&o.group, "group", "g", "", "`name` of a consumer group to be a member of: each message goes to one member")
	fs.Var(choice(&o.ack, "auto", "none"), "ack", "when a message of the group is done: auto, once it is written or its command has succeeded; none, once the broker has sent it")
	fs.Var(whole(&o.maxInFlight, 0, int(core.OptionRange("max_in_flight").Max)), "max-in-flight", "messages to have at once without having acknowledged them; 0: the broker's, with --exec as many as --exec-parallel")
	fs.Var(span(&o.ackDeadline, 0, time.Duration(core.OptionRange("ack_deadline").Max)), "ack-deadline", "how long a message may go without an ack before another member gets it; 0: for ever (default: the group's)")
	fs.Var(whole(&o.maxAttempts, 0, int(core.OptionRange("max_attempts").Max)), "max-attempts", "how often a message is delivered before it becomes a dead letter; 0: the group's")
	fs.StringVarP(&o.exec, "exec", "x", "", "run this shell `command` for each message, the payload as its input, instead of printing")
	fs.Var(whole(&o.execParallel, 1, 4096), "exec-parallel", "commands at once")
	fs.Var(span(&o.grace, 0, longest), "grace", "how long commands that run at a stop may take to finish")
	fs.Var(whole(&o.capacity, 0, math.MaxUint32), "capacity", "queue slots at the broker, in messages; 0: the broker's own, which is also the most, or the group's")
	fs.Var(choice(&o.overflow, "evict", "reject", "drop-oldest", "drop-newest"), "overflow", "`policy` when the queue is full: drop-oldest, drop-newest, evict (not for groups, else the default) or reject (for groups, which refuses the publish; their default)")
	addBool(fs, &o.exitOnEvict, "exit-on-evict", "", "exit with 75 when evicted, instead of subscribing again")
	fs.StringVar(&o.readyFile, "ready-file", "", "create `path` once the subscription is open")
	fs.StringVar(&o.id, "id", "", "subscription `id`; a second subscription with it replaces the first (default: the broker makes one)")
	fs.StringVar(&o.clientName, "client-name", o.clientName, "`name` that operators see")
	fs.Lookup("client-name").DefValue = "user@host"
	flagOnly(fs, "exec")
	o.clientOptions.addFlags(fs)
}

func newSubCmd(a *app, runF func(context.Context, *subOptions) error) *cobra.Command {
	o := newSubOptions()
	if runF == nil {
		runF = func(ctx context.Context, o *subOptions) error { return runSub(ctx, a, o) }
	}
	cmd := &cobra.Command{
		Use:   "sub PATTERN...",
		Short: "Subscribe and print messages",
		Long: `Print every message whose topic matches one of the patterns, from now on, until
interrupted. Quote patterns: the shell has its own ideas about *.

  orders.created    that topic
  orders.*          one more segment
  orders.**         any number of segments more, none included
  orders.{eu,us}.*  alternatives
  job-[0-9]  job-?  one character of a set, any one character
  '!orders.test'    not these, whatever the other patterns say

On a terminal each message is one line, or with -d and -N its payload, in which
nothing that the message holds can drive the terminal. Otherwise payloads are
written as they are, each with a line end after it. -o chooses, and writes them
as they are to a terminal, too:

  text    12:01:02.345 orders k=abc [trace=17] 132B payload
  raw     the payload and a delimiter (-d, or -N for none)
  json    one object a line: topic, seq, time, key, headers, size, attempt and
          data, or data_base64 when that is not UTF-8; pub -i json reads it back
          exactly
  len     4 bytes of length, most significant first, then the payload; pub -i
          len reads it back
  hex     the payload in hexadecimal, one line each
  base64  the same in base64

--format is a Go template that knows .Topic .Seq .Time .Key .Headers .Payload
.Size .Attempt and the functions hex, base64 and json. In JSON, what is not
UTF-8 becomes replacement characters: {{base64 .Payload}} is exact.

A subscriber that reads too slowly is evicted when its queue at the broker is
full. It says so, and how many messages were lost, and subscribes again. It does
the same after a lost connection; what was published meanwhile is missing.

With --group the subscription is a member of a consumer group: each message goes
to one of the members, and is done when that one acknowledges it: once it is
written or, with --exec, once the command has succeeded. What a member has not
acknowledged when it ends goes to the others at once; one that is stopped, or
has its --count, gives back what it has not started. Messages with the same
key stay in order. The group outlives its last member for a while and goes on
queueing, so that restarts lose nothing.

--exec runs a command for each message, by sh -c, with the payload as standard
input and the message in the environment:

  TINYBROKER_TOPIC, _KEY, _SEQ, _ATTEMPT, _GROUP, _TIME
  TINYBROKER_HEADERS          the headers, as a JSON object
  TINYBROKER_HEADER_TRACE_ID  the header trace-id, and so on

What it prints goes on, line by line. In a group, exit code 0 acknowledges the
message and 65 rejects it; after any other it is delivered again, some seconds
later. When it was rejected, or delivered --max-attempts times, it becomes a
dead letter on $tb.dlq.GROUP. Without a group a failure is only reported.
Commands that run when sub is stopped, or its terminal is closed, have --grace
to finish; a second signal kills them.

The exit code is 0 when --count messages came, or when --for or --idle ended and
no --count was given. It is 124 when they ended short of --count, and 69 when
there was no connection at that time.`,
		Example: `  # everything
  tinybroker sub '**'

  # the next message, and no longer than 5 seconds
  tinybroker sub deploy.rollout -n 1 --for 5s

  # all but the debug logs, as JSON
  tinybroker sub 'logs.**' '!logs.debug.**' -o json

  # a worker: messages go to one of those that run this, 4 commands at once
  tinybroker sub 'jobs.**' -g workers -x 'sh job.sh' --exec-parallel 4

  # one job
  tinybroker sub 'jobs.**' -g workers -n 1

  # what has failed for good; what the broker does
  tinybroker sub '$tb.dlq.*' -o json
  tinybroker sub '$tb.event.**'

  # topic and payload, tab between them
  tinybroker sub 'orders.*' --format '{{.Topic}}	{{.Payload}}'`,
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{noteSection: sectionClient},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given = givenFlags(a, cmd.Flags())
			o.patterns = args
			if err := o.checkValues(); err != nil {
				return err
			}
			if err := settle("sub", cmd.Flags(), o.given, o.clashes()); err != nil {
				return err
			}
			return runF(cmd.Context(), o)
		},
		ValidArgsFunction: o.completeTopics(true),
	}
	o.addFlags(cmd.Flags())
	// It fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("group", o.completeGroups)
	return cmd
}

// checkValues refuses what no use has a meaning for.
func (o *subOptions) checkValues() error {
	if len(o.patterns) == 0 {
		return usagef("sub: needs a PATTERN; '**' matches every topic")
	}
	if _, err := core.ParsePatterns(o.patterns); err != nil {
		err = failf(exitUsage, "sub: %w", err)
		if expandedByShell(o.patterns) {
			err = withHint(err, quotePatterns)
		}
		return err
	}
	for _, n := range []struct{ what, name string }{{"id", o.id}, {"client-name", o.clientName}} {
		if n.name == "" {
			continue
		}
		if err := core.ValidateName(n.what, n.name); err != nil {
			return badName("sub", n.what, err)
		}
	}
	if o.group != "" {
		if err := core.ValidateGroupName(o.group); err != nil {
			return withHint(badName("sub", "group", err), "a group's name is one word without dots or wildcards, such as workers; its dead letters go to $tb.dlq.NAME")
		}
	}
	if _, err := parseDelimiter(o.delimiter); err != nil {
		return usagef("sub: --delimiter: %w", err)
	}
	return nil
}

// badName is the failure by a name that the broker would refuse.
func badName(command, flag string, err error) error {
	return usagef("%s: --%s: %s", command, flag, strings.TrimPrefix(err.Error(), core.ErrProtocol.Error()+": "))
}

// formatter is how messages are written to a stream.
func (o *subOptions) formatter(terminal, color bool) (format, error) {
	delimiter, err := parseDelimiter(o.delimiter)
	if err != nil {
		return nil, usagef("sub: --delimiter: %w", err)
	}
	if o.noDelimiter {
		delimiter = ""
	}
	if o.format != "" {
		return templateFormat(o.format, delimiter, terminal)
	}
	switch {
	case o.output != "auto":
		return formatNamed(o.output, delimiter, color), nil
	case !terminal:
		return formatNamed("raw", delimiter, color), nil
	case o.noDelimiter || o.given["delimiter"]: // payloads are asked for, and not that they drive the terminal
		return func(dst []byte, d *rpc.Delivery) ([]byte, error) {
			return append(appendSafeLines(dst, d.Payload), delimiter...), nil
		}, nil
	}
	return formatNamed("text", delimiter, color), nil
}
