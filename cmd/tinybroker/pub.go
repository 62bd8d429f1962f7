package main

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// pubOptions are the flags and arguments of pub.
type pubOptions struct {
	*clientOptions
	topic      string
	payload    string
	hasPayload bool // then standard input is not touched

	input        string
	delimiter    string
	files        []string
	crlf         bool
	skipEmpty    bool
	key          string
	keyDelimiter string
	headers      []string
	count        int64
	rate         float64
	interval     time.Duration
	template     bool
	maxWait      time.Duration
	maxInflight  int
	onError      string
	tee          bool
	output       string

	given map[string]bool // the flags that were set, wherever
}

func newPubOptions() *pubOptions {
	o := &pubOptions{
		clientOptions: newClientOptions(),
		input:         "line",
		delimiter:     `\n`,
		count:         1,
		maxWait:       5 * time.Second,
		maxInflight:   10000,
		onError:       "stop",
		output:        "none",
	}
	o.reconnectTimeout = 30 * time.Second
	return o
}

func (o *pubOptions) addFlags(fs *pflag.FlagSet) {
	fs.VarP(choice(&o.input, "line", "whole", "nul", "len", "json"), "input", "i", "how standard input is cut into messages: line, whole, nul, len (4-byte length first) or json (as sub -o json writes)")
	fs.StringVarP(&o.delimiter, "delimiter", "d", o.delimiter, "`text` that ends a line; knows \\n \\r \\t \\0 \\xNN")
	fs.VarP(stringsValue{&o.files, "path"}, "file", "f", "publish the file as one message, or cut as -i says; repeat for several")
	addBool(fs, &o.crlf, "crlf", "", "take a carriage return off the end of each line, too")
	addBool(fs, &o.skipEmpty, "skip-empty", "", "do not publish empty lines")
	fs.StringVarP(&o.key, "key", "k", "", "`key` of the messages")
	fs.StringVarP(&o.keyDelimiter, "key-delimiter", "K", "", "cut each record at the first `delimiter` into key and payload")
	fs.VarP(stringsValue{&o.headers, "name:value"}, "header", "H", "header of the messages; repeat for several")
	fs.VarP(whole(&o.count, 1, math.MaxInt64), "count", "n", "publish PAYLOAD this many times")
	fs.VarP(rateValue{&o.rate}, "rate", "r", "at most this many messages a second; 0: no limit")
	fs.Var(span(&o.interval, 0, longest), "interval", "time between messages")
	addBool(fs, &o.template, "template", "T", "topic, payload, key and headers are Go templates")
	fs.Var(span(&o.maxWait, 0, longest), "max-wait", "how long to be held back by slow subscribers before their overflow policy applies; 0: not at all")
	fs.Var(whole(&o.maxInflight, 1, 1<<24), "max-inflight", "unconfirmed messages at once; reading stops while there are as many")
	fs.Var(choice(&o.onError, "stop", "continue"), "on-error", "what to do after a bad record: stop or continue")
	addBool(fs, &o.tee, "tee", "", "copy the input that the broker has accepted to standard output, as it was read")
	fs.VarP(choice(&o.output, "none", "json"), "output", "o", "`format` of receipts on standard output: none or json")
	flagOnly(fs, "header", "file")
	o.clientOptions.addFlags(fs)
}

func newPubCmd(a *app, runF func(context.Context, *pubOptions) error) *cobra.Command {
	o := newPubOptions()
	if runF == nil {
		runF = func(ctx context.Context, o *pubOptions) error { return runPub(ctx, a, o) }
	}
	cmd := &cobra.Command{
		Use:   "pub TOPIC [PAYLOAD]",
		Short: "Publish messages",
		Long: `Publish PAYLOAD as one message. Without PAYLOAD, publish standard input, one
message for each line, each as soon as it was read. With PAYLOAD, standard input
is not touched. A PAYLOAD that begins with - goes after --.

Exactly one line end is taken off each line. Every other byte is kept, empty
lines are messages, and the last line needs no line end. -i chooses another
framing:

  line   up to the delimiter (-d)
  whole  all of the input is one message, even when it is empty
  nul    up to a zero byte, as find -print0 writes
  len    4 bytes of length, most significant first, then as many bytes
  json   one object a line, as sub -o json writes: topic, key, headers, time,
         and data or data_base64. TOPIC may be left out; given, it replaces the
         topic of every line, as -k does the key. -H adds a header, or replaces
         the one of that name.

The exit code is 0 only when the broker has confirmed every message. When the
connection is lost, what is unconfirmed is sent again once it is back: a message
that had arrived before then comes twice. When it is stopped, or its terminal is
closed, it waits 2 seconds at most for what is unconfirmed.

With -T, topic, payload, key and headers are Go templates that know:

  .Seq   number of the message, from 1       .UUID       a random UUID
  .Line  number of the input record, from 1  .Host       this machine's name
  .Now   the time, RFC 3339                  .UnixMilli  it in milliseconds

Subscribers that read too slowly hold a publisher back for --max-wait before
they are evicted (or their messages are dropped, as they chose). A consumer
group without room holds it back, too, and then refuses the message for all:
exit code 75. With --max-wait 0 a publisher is never held back.`,
		Example: `  # one message
  tinybroker pub deploy.rollout started

  # a message for each line, as it is written
  tail -f app.log | tinybroker pub logs.app

  # files, each one message
  tinybroker pub config.changed -f a.yaml -f b.yaml

  # key and payload from each line
  printf 'alice:1\nbob:2\n' | tinybroker pub scores -K :

  # 5 messages, 10 a second, numbered
  tinybroker pub ticks 'tick {{.Seq}}' -T -n 5 -r 10

  # everything from one broker to another
  tinybroker sub -o json '**' | tinybroker pub -i json -s 127.0.0.1:7711`,
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{noteSection: sectionClient},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given = givenFlags(a, cmd.Flags())
			if err := o.arguments(args); err != nil {
				return err
			}
			if err := settle("pub", cmd.Flags(), o.given, o.clashes()); err != nil {
				return err
			}
			if len(args) == 0 && o.input != "json" {
				return withHint(usagef("pub: needs a TOPIC"), "as in: tinybroker pub deploy.rollout 'web 1.4.2'")
			}
			if err := o.checkValues(); err != nil {
				return err
			}
			return runF(cmd.Context(), o)
		},
		ValidArgsFunction: o.completeTopics(false),
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// arguments takes the arguments.
func (o *pubOptions) arguments(args []string) error {
	if len(args) > 2 {
		err := usagef("pub: takes TOPIC and PAYLOAD, got %d arguments", len(args))
		if hasComment(args) {
			return withHint(err, commentHint)
		}
		return withHint(err, "quote a payload that holds spaces")
	}
	if len(args) > 0 {
		o.topic = args[0]
		if err := o.checkTopic(); err != nil {
			return err
		}
	}
	if len(args) > 1 {
		o.payload, o.hasPayload = args[1], true
	}
	return nil
}

func (o *pubOptions) checkTopic() error {
	if o.template {
		return nil // known only when it is filled in
	}
	if err := core.ValidateTopic([]byte(o.topic)); err != nil {
		return failf(exitUsage, "pub: %w", err)
	}
	return nil
}

// clashes are the settings that do not go together.
func (o *pubOptions) clashes() []clash {
	return []clash{
		{flag: "input", text: "--input is for standard input and files, and there is a PAYLOAD",
			found: func() bool { return o.hasPayload && o.given["input"] }},
		{flag: "file", text: "--file and a PAYLOAD exclude each other",
			found: func() bool { return o.hasPayload && len(o.files) > 0 }},
		{flag: "count", text: "--count repeats a PAYLOAD, and there is none",
			found: func() bool { return !o.hasPayload && o.given["count"] }},
		{flag: "rate", with: []string{"interval"}, equal: true, text: "--rate and --interval exclude each other",
			found: func() bool { return o.given["rate"] && o.given["interval"] && o.rate > 0 && o.interval > 0 }},
		{flag: "key", with: []string{"key-delimiter"}, equal: true, text: "--key and --key-delimiter exclude each other",
			found: func() bool { return o.given["key"] && o.given["key-delimiter"] }},
		{flag: "key-delimiter", text: "--key-delimiter is empty",
			found: func() bool { return o.given["key-delimiter"] && o.keyDelimiter == "" }},
		{flag: "key-delimiter", with: []string{"input"}, text: "--key-delimiter has no meaning for json input",
			found: func() bool { return o.given["key-delimiter"] && o.input == "json" }},
		{flag: "delimiter", with: []string{"input"}, text: "--delimiter is for --input line",
			found: func() bool { return o.given["delimiter"] && o.input != "line" }},
		{flag: "crlf", with: []string{"input"}, text: "--crlf is for --input line",
			found: func() bool { return o.crlf && o.input != "line" }},
		{flag: "skip-empty", with: []string{"input"}, text: "--skip-empty is for --input line and nul",
			found: func() bool { return o.skipEmpty && o.input != "line" && o.input != "nul" }},
		{flag: "tee", with: []string{"output"}, equal: true, text: "--tee and --output json exclude each other: both write standard output",
			found: func() bool { return o.tee && o.output == "json" }},
	}
}

// checkValues refuses what no use has a meaning for.
func (o *pubOptions) checkValues() error {
	if !utf8.ValidString(o.key) {
		return usagef("pub: --key is not UTF-8")
	}
	if !utf8.ValidString(o.keyDelimiter) {
		return usagef(`pub: --key-delimiter is not UTF-8; write \xNN for bytes`)
	}
	if o.keyDelimiter != "" {
		if _, err := parseDelimiter(o.keyDelimiter); err != nil {
			return usagef("pub: --key-delimiter: %w", err)
		}
	}
	if d, err := parseDelimiter(o.delimiter); err != nil {
		return usagef("pub: --delimiter: %w", err)
	} else if d == "" {
		return usagef("pub: --delimiter is empty; for one message use --input whole")
	}
	if _, err := parseHeaders(o.headers); err != nil {
		return err
	}
	return nil
}

// parseHeaders reads NAME:VALUE; spaces after the colon do not belong to the value.
func parseHeaders(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	headers := make(map[string]string, len(list))
	for _, h := range list {
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" {
			return nil, usagef("pub: --header: %q is not NAME:VALUE", h)
		}
		if !utf8.ValidString(h) {
			return nil, usagef("pub: --header: %q is not UTF-8", h)
		}
		headers[name] = strings.TrimLeft(value, " \t")
	}
	return headers, nil
}

// checkFiles finds files that cannot be read before anything is published. Pipes are left alone: opening one of them
// takes from whoever writes to it.
func checkFiles(paths []string) error {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			err = errors.New("is a directory")
		}
		if err == nil && info.Mode().IsRegular() {
			var f *os.File
			if f, err = os.Open(path); err == nil {
				f.Close()
			}
		}
		if err != nil && path == "-" {
			return withHint(failf(exitNoInput, "--file -: %s", rootCause(err)), "without --file pub reads standard input; -i whole makes one message of it")
		}
		if err != nil {
			return failf(exitNoInput, "--file %s: %s", path, rootCause(err))
		}
	}
	return nil
}
