package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/tui"
)

// lsKinds are what ls lists.
var lsKinds = []struct {
	name string
	view core.View
}{
	{"topics", core.ViewTopics},
	{"subs", core.ViewSubscriptions},
	{"groups", core.ViewGroups},
	{"members", core.ViewMembers},
	{"evictions", core.ViewEvictions},
}

func lsNames() []string {
	names := make([]string, len(lsKinds))
	for i, k := range lsKinds {
		names[i] = k.name
	}
	return names
}

// lsOptions are the flags and the argument of ls.
type lsOptions struct {
	*clientOptions
	*rowOptions
	view core.View
}

func (o *lsOptions) addFlags(fs *pflag.FlagSet) {
	o.rowOptions.addFlags(fs)
	fs.VarP(choice(&o.output, "table", "json"), "output", "o", "`format`: table or json")
	o.clientOptions.addFlags(fs)
}

func newLsCmd(a *app, runF func(context.Context, *lsOptions) error) *cobra.Command {
	o := &lsOptions{clientOptions: newClientOptions(), rowOptions: newRowOptions()}
	if runF == nil {
		runF = func(ctx context.Context, o *lsOptions) error { return runLs(ctx, a, o) }
	}
	names := lsNames()
	cmd := &cobra.Command{
		Use:   "ls " + strings.Join(names, "|"),
		Short: "List topics, subscriptions, groups, members or evictions",
		Long: `List what the broker knows of one kind, as a table or as one line of JSON. The
broker sorts, filters and cuts the list. By default the most interesting rows
come first: the busiest topics, the fullest queues, the latest evictions.

` + sortHelp(),
		Example: `  tinybroker ls topics
  tinybroker ls subs --sort dropped --limit 10
  tinybroker ls members --filter billing
  tinybroker ls evictions -o json`,
		Args:        cobra.ArbitraryArgs,
		Annotations: map[string]string{noteSection: sectionClient},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.argument(args); err != nil {
				return err
			}
			if err := settle("ls", cmd.Flags(), givenFlags(a, cmd.Flags()), []clash{o.sortClash(o.view)}); err != nil {
				return err
			}
			if err := o.checkValues("ls"); err != nil {
				return err
			}
			return runF(cmd.Context(), o)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	o.addFlags(cmd.Flags())
	completeSort(cmd, func(args []string) core.View {
		_ = o.argument(args) // without one there is nothing to complete
		return o.view
	})
	return cmd
}

// sortHelp lists the columns of each kind, the default first.
func sortHelp() string {
	var b strings.Builder
	b.WriteString("--sort takes, the default first:\n")
	for _, k := range lsKinds {
		fmt.Fprintf(&b, "\n  %-10s %s", k.name, strings.Join(core.SortColumns(k.view), ", "))
	}
	return b.String()
}

func (o *lsOptions) argument(args []string) error {
	if len(args) == 1 {
		for _, k := range lsKinds {
			if k.name == args[0] {
				o.view = k.view
				return nil
			}
		}
	}
	names := lsNames()
	if len(args) == 0 {
		return usagef("ls: needs one of %s", strings.Join(names, ", "))
	}
	err := &exitError{code: exitUsage, err: fmt.Errorf("ls: %q is not one of %s", strings.Join(args, " "), strings.Join(names, ", "))}
	if near := nearest(args[0], names); near != "" && len(args) == 1 {
		err.hint = "did you mean tinybroker ls " + near + "?"
	}
	return err
}

func runLs(ctx context.Context, a *app, o *lsOptions) error {
	n := o.notices(a.streams)
	client, err := o.dial(ctx, n, new(link))
	if err != nil {
		return err
	}
	defer client.Close()
	asking, cancel := context.WithTimeout(ctx, o.connectTimeout)
	defer cancel()
	snap, err := client.Observe(asking, o.query(o.view))
	if err != nil {
		return fmt.Errorf("ls: %w", err)
	}
	err = a.report(ctx, func(w io.Writer) error {
		if o.output == "json" {
			return writeSnapshotJSON(w, snap, o.view, o.server, 0)
		}
		return tui.WriteText(w, snap, o.view, tui.TextOptions{Filter: o.filter})
	})
	if err != nil {
		return err
	}
	tellCut(n, snap, o.view)
	return nil
}

// tellCut says that there are more rows of a view than the snapshot has.
func tellCut(n *notices, snap *core.Snapshot, v core.View) {
	if shown, all := rowsOf(snap, v); shown < all {
		n.info("%d of %d rows; see --limit", shown, all)
	}
}

// rowsOf counts the rows of a view: those in the snapshot, and those there are.
func rowsOf(snap *core.Snapshot, v core.View) (shown, all int) {
	switch v {
	case core.ViewTopics:
		return len(snap.Topics), snap.Rows.Topics
	case core.ViewSubscriptions:
		return len(snap.Subscriptions), snap.Rows.Subscriptions
	case core.ViewGroups:
		return len(snap.Groups), snap.Rows.Groups
	case core.ViewMembers:
		return len(snap.Members), snap.Rows.Members
	}
	return len(snap.Evictions), snap.Rows.Evictions
}
