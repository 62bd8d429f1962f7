package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
	"codeberg.org/tinybroker/tinybroker/internal/tui"
)

// topOptions are the flags of top.
type topOptions struct {
	*clientOptions
	*rowOptions
	viewName string
	interval time.Duration
	ascii    bool
	once     bool
	batch    bool

	given map[string]bool // the flags that were set, wherever
}

func newTopOptions() *topOptions {
	return &topOptions{clientOptions: newClientOptions(), rowOptions: newRowOptions(), viewName: "overview", interval: time.Second}
}

var topViews = map[string]core.View{
	"overview": core.ViewOverview, "topics": core.ViewTopics, "subs": core.ViewSubscriptions, "groups": core.ViewGroups, "evictions": core.ViewEvictions,
}

const mostInterval = time.Hour

func (o *topOptions) addFlags(fs *pflag.FlagSet) {
	fs.Var(choice(&o.viewName, "overview", "topics", "subs", "groups", "evictions"), "view", "`view` to begin with: overview, topics, subs, groups or evictions")
	fs.Var(span(&o.interval, rpc.MinWatchInterval, mostInterval), "interval", "time between updates")
	o.rowOptions.addFlags(fs)
	addBool(fs, &o.ascii, "ascii", "", "draw with ASCII alone; names beyond it are escaped")
	addBool(fs, &o.once, "once", "", "print one snapshot and exit; needs no terminal")
	addBool(fs, &o.batch, "batch", "", "print one snapshot after the other; needs no terminal")
	fs.VarP(choice(&o.output, "table", "json"), "output", "o", "`format` of --once and --batch: table or json")
	o.clientOptions.addFlags(fs)
}

func newTopCmd(a *app, runF func(context.Context, *topOptions) error) *cobra.Command {
	o := newTopOptions()
	if runF == nil {
		runF = func(ctx context.Context, o *topOptions) error { return runTop(ctx, a, o) }
	}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the broker at work",
		Long: `Show topics, subscriptions, consumer groups and evictions as they are, once a
second: who publishes how much, whose queue fills up, who was evicted and why.

  1-5, tab   overview, topics, subscriptions, groups, evictions
  up, down   move; j, k, PgUp, PgDn, g and G as well
  enter      open the row: a topic's subscriptions, a group's members, a record
  esc        clear the filter, go back
  /          keep the rows with a name that contains what is typed
  s, R       sort by the next column, reverse
  space      pause; the connection goes on
  x          close the subscription, after a confirmation
  ?          all keys
  q          quit

A connection that is lost is tried to get back until --reconnect-timeout ends;
what was last seen stays on the screen, marked DISCONNECTED.

--once and --batch print snapshots and need no terminal. As JSON a snapshot is
one line with everything in it, or what --view names: whole numbers, bytes and
seconds. Rates are computed by the broker, so the first snapshot has them.`,
		Example: `  tinybroker top
  tinybroker top --view subs --sort dropped

  # everything the broker knows, for a script
  tinybroker top --once -o json

  # a line every ten seconds
  tinybroker top --batch --interval 10s -o json >> broker.log`,
		Args:        noArgs,
		Annotations: map[string]string{noteSection: sectionClient},
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = givenFlags(a, cmd.Flags())
			if err := settle("top", cmd.Flags(), o.given, o.clashes()); err != nil {
				return err
			}
			if err := o.checkValues("top"); err != nil {
				return err
			}
			return runF(cmd.Context(), o)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.addFlags(cmd.Flags())
	completeSort(cmd, func([]string) core.View { return topViews[o.viewName] })
	return cmd
}

// clashes are the settings that do not go together.
func (o *topOptions) clashes() []clash {
	return []clash{
		{flag: "once", with: []string{"batch"}, equal: true, text: "--once and --batch exclude each other",
			found: func() bool { return o.once && o.batch }},
		{flag: "output", text: "--output is for --once and --batch",
			found: func() bool { return o.given["output"] && !o.once && !o.batch }},
		{flag: "sort", text: "--sort: the overview has an order of its own; choose another with --view",
			found: func() bool { return o.sort != "" && o.view() == core.ViewOverview }},
		o.sortClash(o.view()),
	}
}

func (o *topOptions) view() core.View { return topViews[o.viewName] }

func runTop(ctx context.Context, a *app, o *topOptions) error {
	if o.once || o.batch {
		return printTop(ctx, a, o)
	}
	in, out, err := terminals(a)
	if err != nil {
		return err
	}
	early := &shuttableWriter{w: a.err}
	source := &topSource{options: o.clientOptions, notices: &notices{w: early, quiet: o.quiet}}
	defer source.close()
	if err := source.begin(ctx); err != nil {
		return err
	}
	early.shut()
	if before, err := saveTerminal(in, out); err == nil {
		a.terminal.Store(before)
		defer a.terminal.Store(nil)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer watchReader(out, func() { end(&writeError{errReaderGone}) })() // a terminal that has gone need not send a signal
	screen := tui.Options{
		Address: o.server, View: o.view(), Interval: o.interval,
		Sort: o.sort, Reverse: o.reverse, Filter: o.filter, Limit: o.limit,
		ASCII: o.ascii, Color: useColor(o.color, out),
		ReconnectTimeout: o.reconnectTimeout, NoReconnect: o.noReconnect,
	}
	defer watchJobControl(&screen, a.abort)()
	left, err := leaving(ctx, writePatience, func() error { return tui.Run(ctx, source, screen, in, out) })
	if before := a.terminal.Load(); left && before != nil {
		before.restore()
	}
	return topEnd(a, o, err)
}

// terminals are standard input and output, if a screen can be drawn there.
func terminals(a *app) (in, out *os.File, err error) {
	in, isIn := fileOf(a.in)
	out, isOut := fileOf(a.out)
	var why string
	switch {
	case !isOut || !isTerminal(out):
		why = "standard output is not one"
	case !isIn || !isTerminal(in):
		why = "standard input is not one"
	case os.Getenv("TERM") == "dumb":
		why = "TERM=dumb cannot move the cursor"
	default:
		return in, out, nil
	}
	return nil, nil, &exitError{
		code: exitUsage, err: fmt.Errorf("top: needs a terminal: %s", why), hint: "use --once for one snapshot, --batch for one after the other",
	}
}

// topEnd is how the command ends, given how the screen did.
func topEnd(a *app, o *topOptions, err error) error {
	var (
		sig    *signalError
		lost   *tui.LostError
		defect *tui.PanicError
	)
	switch {
	case errors.As(err, &sig):
		return sig
	case errors.Is(err, tui.ErrInterrupted):
		return &signalError{os.Interrupt}
	case errors.As(err, &lost):
		return failf(exitUnavailable, "top: connection to broker at %s lost: %w", o.server, lost.Err)
	case errors.As(err, &defect):
		fmt.Fprintf(a.err, "%s", appendSafeLines(nil, defect.Stack))
		return fmt.Errorf("top: %w", defect)
	case err != nil:
		return fmt.Errorf("top: %w", err)
	}
	return nil
}
