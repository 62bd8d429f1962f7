package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// completionPatience is how long the shell is kept waiting for names from a broker.
const completionPatience = 300 * time.Millisecond

// reasonPatience is how much of it finding out why there is no connection may take.
const reasonPatience = 100 * time.Millisecond

// describePlainly takes the quotes off the descriptions of flags in which help finds the name of a value: completion shows them as they are.
func describePlainly(root *cobra.Command) {
	walk(root, func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	})
}

// completeTopics completes the first argument, or every one, with topics that the broker knows.
func (o *clientOptions) completeTopics(every bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !every {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.liveNames(cmd, core.ViewTopics, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeGroups completes a flag with the groups that the broker knows.
func (o *clientOptions) completeGroups(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return o.liveNames(cmd, core.ViewGroups, begun), cobra.ShellCompDirectiveNoFileComp
}

// liveNames asks the broker for names that begin with what was typed. Without a broker, or one that is slow, there are none:
// nothing is said, since the shell is in the middle of a line.
func (o *clientOptions) liveNames(cmd *cobra.Command, v core.View, begun string) []cobra.Completion {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	// The environment and the file may say where the broker is. What is wrong with them is told when the command runs.
	if left, _ := leaving(ctx, 0, func() error { _, err := loadConfig(cmd.Flags(), nil); return err }); left {
		return nil
	}
	o.connectTimeout, o.wait = completionPatience-reasonPatience, false
	client, err := o.dial(ctx, noNotices(), new(link))
	if err != nil {
		return nil
	}
	defer client.Close()
	snap, err := client.Observe(ctx, core.Query{View: v, Filter: begun, Limit: core.DefaultLimit})
	if err != nil {
		return nil
	}
	var names []cobra.Completion
	add := func(name string) {
		// What would have to be escaped cannot be typed either, and what begins with - would be a flag.
		if strings.HasPrefix(name, begun) && !strings.HasPrefix(name, "-") && safe(name) == name && !strings.ContainsAny(name, "\\\t ") {
			names = append(names, name)
		}
	}
	for i := range snap.Topics {
		add(snap.Topics[i].Topic)
	}
	for i := range snap.Groups {
		add(snap.Groups[i].Name)
	}
	return names
}
