package main

import (
	"context"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/core"
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

	given map[string]bool // the flags that were set, wherever
}

func newSubOptions() *subOptions {
	return &subOptions{
		clientOptions: newClientOptions(),
		clientName:    userAtHost(),
		output:        "auto",
		delimiter:     `\n`,
		overflow:      "evict",
	}
}

var overflowPolicies = map[string]core.OverflowPolicy{
	"evict": core.OverflowEvict, "drop-oldest": core.OverflowDropOldest, "drop-newest": core.OverflowDropNewest,
}

func (o *subOptions) addFlags(fs *pflag.FlagSet) {
	fs.VarP(choice(&o.output, "auto", "text", "raw", "json", "len", "hex", "base64"), "output", "o", "`format`: text, raw, json, len, hex, base64, or auto (text on a terminal, else raw)")
	fs.StringVarP(&o.delimiter, "delimiter", "d", o.delimiter, "`text` that ends each message of raw and --format output; knows \\n \\r \\t \\0 \\xNN")
	addBool(fs, &o.noDelimiter, "no-delimiter", "N", "nothing ends a message of raw and --format output")
	fs.StringVar(&o.format, "format", "", "Go `template` for each message, instead of --output")
	fs.VarP(whole(&o.count, 1, math.MaxInt64), "count", "n", "stop after this many messages (default: never)")
	fs.Var(span(&o.idle, 0, longest), "idle", "stop after this long without a message; 0: never")
	fs.Var(span(&o.forTime, 0, longest), "for", "stop after this long; 0: never")
	fs.Var(whole(&o.capacity, 0, math.MaxUint32), "capacity", "queue slots at the broker, in messages; 0: the broker's own, which is also the most")
	fs.Var(choice(&o.overflow, "evict", "drop-oldest", "drop-newest"), "overflow", "`policy` when the queue is full: evict, drop-oldest or drop-newest")
	addBool(fs, &o.exitOnEvict, "exit-on-evict", "", "exit with 75 when evicted, instead of subscribing again")
	fs.StringVar(&o.readyFile, "ready-file", "", "create `path` once the subscription is open")
	fs.StringVar(&o.id, "id", "", "subscription `id`; a second subscription with it replaces the first (default: the broker makes one)")
	fs.StringVar(&o.clientName, "client-name", o.clientName, "`name` that operators see")
	fs.Lookup("client-name").DefValue = "user@host"
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

On a terminal each message is one line, in which nothing that the message holds
can drive the terminal. Otherwise payloads are written as they are, each with a
line end after it. -o chooses:

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
.Size .Attempt and the functions hex, base64 and json.

A subscriber that reads too slowly is evicted when its queue at the broker is
full. It says so, and how many messages were lost, and subscribes again. It does
the same after a lost connection; what was published meanwhile is missing.

The exit code is 0 when --count messages came, or when --for or --idle ended and
no --count was given. It is 124 when they ended short of --count, and 69 when
there was no connection at that time.`,
		Example: `  # everything
  tinybroker sub '**'

  # the next message, and no longer than 5 seconds
  tinybroker sub deploy.rollout -n 1 --for 5s

  # all but the debug logs, as JSON
  tinybroker sub 'logs.**' '!logs.debug.**' -o json

  # topic and payload, tab between them
  tinybroker sub 'orders.*' --format '{{.Topic}}	{{.Payload}}'`,
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{noteSection: sectionClient},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given = givenFlags(a, cmd.Flags())
			o.patterns = args
			if err := o.validate(); err != nil {
				return err
			}
			return runF(cmd.Context(), o)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *subOptions) validate() error {
	if len(o.patterns) == 0 {
		return usagef("sub: needs a PATTERN; '**' matches every topic")
	}
	if _, err := core.ParsePatterns(o.patterns); err != nil {
		return failf(exitUsage, "sub: %w", err)
	}
	for _, n := range []struct{ what, name string }{{"id", o.id}, {"client-name", o.clientName}} {
		if n.name == "" {
			continue
		}
		if err := core.ValidateName(n.what, n.name); err != nil {
			return failf(exitUsage, "sub: --%w", err)
		}
	}
	switch {
	case o.format != "" && o.given["output"]:
		return usagef("sub: --format and --output exclude each other")
	case o.noDelimiter && o.given["delimiter"]:
		return usagef("sub: --delimiter and --no-delimiter exclude each other")
	case (o.noDelimiter || o.given["delimiter"]) && o.format == "" && o.output != "raw" && o.output != "auto":
		return usagef("sub: --delimiter and --no-delimiter are for raw output and --format")
	}
	if _, err := parseDelimiter(o.delimiter); err != nil {
		return usagef("sub: --delimiter: %w", err)
	}
	return nil
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
	name := o.output
	if name == "auto" {
		name = "raw"
		// A delimiter is asked for where bytes are wanted.
		if terminal && !o.noDelimiter && !o.given["delimiter"] {
			name = "text"
		}
	}
	return formatNamed(name, delimiter, color), nil
}
