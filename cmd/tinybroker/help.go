package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newHelpCmd is `help`, which unlike cobra's own fails for a topic that does not exist.
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command or topic]",
		Short: "Help about a command or topic",
		Example: `  tinybroker help pub
  tinybroker help exit-codes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = noSuchCommand(found, rest)
			}
			if err != nil {
				return err
			}
			return found.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			if len(args) == 0 {
				for _, c := range cmd.Root().Commands() {
					if (c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand()) && strings.HasPrefix(c.Name(), begun) {
						names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// newExitCodesTopic is a page of help, not a command.
func newExitCodesTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("Exit codes, the same for every command. They change only by addition.\n\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&text, "  %3d  %s\n", c.code, c.meaning)
	}
	text.WriteString(`
A failure prints one line on standard error, "tinybroker: what: why", and
sometimes a hint below it. A command that is interrupted by a signal cleans up
and then dies by that signal, so that a calling script stops too.`)
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long:  text.String(),
	}
}
