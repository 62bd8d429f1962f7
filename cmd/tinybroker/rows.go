package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// rowOptions say which rows of a view are shown; the broker sorts, filters and cuts.
type rowOptions struct {
	sort    string
	reverse bool
	filter  string
	limit   int
	output  string
}

func newRowOptions() *rowOptions { return &rowOptions{limit: core.DefaultLimit, output: "table"} }

func (o *rowOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.sort, "sort", "", "`column` to sort by (default: the first one that ls --help lists)")
	addBool(fs, &o.reverse, "reverse", "", "the other way round")
	fs.StringVar(&o.filter, "filter", "", "keep the rows in which a name contains this `text`, whatever the case")
	fs.Var(whole(&o.limit, 1, rpc.MaxWatchRows), "limit", "the most rows of a kind")
}

// maxFilter is more than any name has.
const maxFilter = 512

// sortClash is a column that the view does not have.
func (o *rowOptions) sortClash(v core.View) clash {
	columns := core.SortColumns(v)
	return clash{
		flag: "sort", text: fmt.Sprintf("--sort: %q is not one of %s", o.sort, strings.Join(columns, ", ")),
		found: func() bool { return o.sort != "" && !slices.Contains(columns, o.sort) },
	}
}

// checkValues refuses what no view has a meaning for.
func (o *rowOptions) checkValues(command string) error {
	switch {
	case !utf8.ValidString(o.filter):
		return usagef("%s: --filter: is not UTF-8", command)
	case len(o.filter) > maxFilter:
		return usagef("%s: --filter: is longer than %d bytes", command, maxFilter)
	case strings.ContainsFunc(o.filter, unicode.IsControl):
		return usagef("%s: --filter: holds a control character, and no name does", command)
	}
	return nil
}

func (o *rowOptions) query(v core.View) core.Query {
	return core.Query{View: v, Sort: o.sort, Reverse: o.reverse, Filter: o.filter, Limit: o.limit}
}

// completeSort lets the shell complete --sort for the view that the command line names.
func completeSort(cmd *cobra.Command, view func(args []string) core.View) {
	// It fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("sort", func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return core.SortColumns(view(args)), cobra.ShellCompDirectiveNoFileComp
	})
}
