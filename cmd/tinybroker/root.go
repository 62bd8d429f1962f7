package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app is what every command gets from outside: the streams and, once loaded, the configuration. What cobra prints by itself goes
// to pages.
type app struct {
	*streams
	config   *config
	pages    checkedWriter
	children children                      // processes that end with this one
	terminal atomic.Pointer[terminalState] // as it was before a screen was drawn on it; nil: none is
	hangups  <-chan os.Signal              // SIGHUPs, for serve
	signals  *signalWatch                  // ends the context of the command; nil: nobody watches
}

// abort is what must be done before the process ends at once.
func (a *app) abort() {
	a.children.kill()
	if t := a.terminal.Load(); t != nil {
		t.restore()
	}
}

// run is the program: it parses, runs one command, prints its error, and says how to end.
func run(args []string, s *streams) ending {
	a := &app{streams: s}
	ctx, signals := watchSignals(context.Background(), a.abort)
	a.signals = signals
	defer signals.stop()
	root := newRootCmd(a)
	root.SetArgs(args)
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		describePlainly(root)
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.pages.err
	}
	var sig *signalError
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) && !errors.As(err, &sig) {
		err = cause
	}
	return endWith(err, s)
}

func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "tinybroker",
		Short: "A small in-memory message broker",
		Long: `tinybroker is a message broker for one machine: topics that exist by being used,
subscriptions by pattern, nothing on disk. This one program is the broker and
its tools.`,
		Example: `  # terminal 1: the broker
  tinybroker serve

  # terminal 2: everything that is published below "deploy"
  tinybroker sub 'deploy.**'

  # terminal 3: one message, and one for each line of a file
  tinybroker pub deploy.rollout started
  tinybroker pub deploy.log < app.log`,
		Version:       buildVersion(),
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			// The file may be a pipe, or on a disk, that does not answer.
			_, err := leaving(cmd.Context(), 0, func() error { return a.configure(cmd) })
			return err
		},
	}
	root.SetIn(a.in)
	a.pages.w = a.out
	root.SetOut(&a.pages)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(printHelp)
	root.SetVersionTemplate("tinybroker {{.Version}}\n")
	root.Flags().Bool("version", false, "print the version") // without cobra's -v, which is --verbose elsewhere
	root.SetHelpCommand(newHelpCmd())
	root.AddCommand(
		newServeCmd(a, nil),
		newPubCmd(a, nil),
		newSubCmd(a, nil),
		newTopCmd(a, nil),
		newLsCmd(a, nil),
		newBenchCmd(a, nil),
		newStatusCmd(a, nil),
		newTokenCmd(a),
		newVersionCmd(a),
		newDocsCmd(a),
		newExitCodesTopic(),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	walk(root, func(c *cobra.Command) {
		c.Flags().SortFlags = false
		completeChoices(c)
		if c.HasSubCommands() && c.HasParent() {
			c.Args, c.RunE = noSuchCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	})
	return root
}

// completeChoices lets the shell complete the values of flags that have only a few.
func completeChoices(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if v, ok := f.Value.(choiceValue); ok {
			// It fails only for a flag that does not exist.
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(v.words, cobra.ShellCompDirectiveNoFileComp))
		}
	})
}

// configure reads the configuration for the commands that have settings. Help, completion and version work whatever is
// wrong with it.
func (a *app) configure(cmd *cobra.Command) error {
	section := cmd.Annotations[noteSection]
	if section == "" {
		return nil
	}
	switch {
	case section == sectionServe:
		a.hangups = watchHangups()
	case a.signals != nil:
		a.signals.add(syscall.SIGHUP) // the terminal has gone: time to leave in order
	}
	c, err := loadConfig(cmd.Flags(), meantForOthers(cmd))
	unknown := unknownEnvironment(cmd.Root())
	if section == sectionServe && len(unknown) > 0 {
		err = withUnknown(err, unknown)
	}
	if err != nil {
		return err
	}
	a.config = c
	// Clients run in environments that are shared with other versions and programs; for them it is a warning.
	if quiet := cmd.Flags().Lookup("quiet"); section == sectionClient && quiet.Value.String() != "true" {
		for _, text := range unknown {
			fmt.Fprintln(a.err, "warning: "+oneLine(text))
		}
	}
	return nil
}

func withUnknown(err error, unknown []string) error {
	var errs mistakes
	if err != nil {
		errs = append(errs, err)
	}
	for _, text := range unknown {
		errs = append(errs, errors.New(text))
	}
	return errs.asConfigError()
}

// flagError says what is wrong with a flag in the words of this program.
func flagError(cmd *cobra.Command, err error) error {
	var (
		invalid *pflag.InvalidValueError
		missing *pflag.ValueRequiredError
		unknown *pflag.NotExistError
	)
	switch {
	case errors.As(err, &invalid):
		return usagef("--%s: %w", invalid.GetFlag().Name, errors.Unwrap(invalid))
	case errors.As(err, &missing):
		return usagef("--%s: needs a value", missing.GetFlag().Name)
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	}
	return usagef("%w", err)
}

func unknownFlag(cmd *cobra.Command, e *pflag.NotExistError) error {
	if group := e.GetSpecifiedShortnames(); group != "" {
		hint := "see " + cmd.CommandPath() + " --help"
		if early := earlyFlagHint(cmd, group); early != "" {
			hint = early
		}
		switch cmd.Name() {
		case "pub":
			hint = "a payload that begins with - goes after --, as in: tinybroker pub TOPIC -- -" + group
		case "sub":
			hint = "a pattern that begins with - goes after --, as in: tinybroker sub -- -" + group
		}
		if argument := argumentHint(cmd.Name(), group[:1]); argument != "" {
			hint = argument
		}
		return &exitError{code: exitUsage, err: fmt.Errorf("unknown flag -%s", group), hint: hint}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	err := &exitError{code: exitUsage, err: fmt.Errorf("unknown flag --%s", e.GetSpecifiedName())}
	meant := nearest(e.GetSpecifiedName(), names)
	for _, here := range flagsElsewhere[e.GetSpecifiedName()] {
		if meant == "" && cmd.Flags().Lookup(here) != nil {
			meant = here
		}
	}
	err.hint = "see " + cmd.CommandPath() + " --help"
	if argument := argumentHint(cmd.Name(), e.GetSpecifiedName()); argument != "" {
		err.hint = argument
	} else if early := earlyFlagHint(cmd, e.GetSpecifiedName()); early != "" {
		err.hint = early
	} else if meant != "" {
		err.hint = "did you mean --" + meant + "?"
	}
	return err
}

// earlyFlagHint is what to do about a flag, or a group of letters, that stands before any command, and that one of them knows; empty: none does,
// or there is a command.
func earlyFlagHint(cmd *cobra.Command, flag string) string {
	if cmd.HasParent() {
		return ""
	}
	if slices.Contains([]string{"v", "V", "version"}, flag) {
		return "--version tells the version; flags of a command go behind it"
	}
	for _, c := range cmd.Commands() {
		if c.Flags().Lookup(flag) != nil || c.Flags().ShorthandLookup(flag[:1]) != nil && len(flag) == 1 {
			return "flags go behind the command, as in: tinybroker COMMAND " + dashed(flag)
		}
	}
	return ""
}

func dashed(flag string) string {
	if len(flag) == 1 {
		return "-" + flag
	}
	return "--" + flag
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		err := usagef("%s: takes no arguments, got %q", cmd.Name(), args[0])
		switch {
		case hasComment(args):
			return withHint(err, commentHint)
		case cmd.Name() == "serve":
			return withHint(err, "an address goes after --listen")
		}
		return err
	}
	return nil
}

func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
			names = append(names, c.Name())
		}
	}
	err := &exitError{code: exitUsage, err: fmt.Errorf("unknown command %q", args[0]), hint: "see " + cmd.CommandPath() + " --help"}
	near := nearest(args[0], names)
	if here := commandsElsewhere[args[0]]; here != "" && cmd == cmd.Root() {
		near = here
	}
	if near != "" {
		err.hint = "did you mean " + cmd.CommandPath() + " " + near + "?"
	}
	return err
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}
