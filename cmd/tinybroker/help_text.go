package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the width of help in columns: that of the narrowest usual terminal.
const helpWidth = 80

// printHelp writes a command's page of help to standard output.
func printHelp(cmd *cobra.Command, _ []string) {
	fmt.Fprint(cmd.OutOrStdout(), helpText(cmd))
}

func helpText(cmd *cobra.Command) string {
	var b strings.Builder
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintln(&b, strings.TrimSpace(text))
	if !cmd.Runnable() && !cmd.HasAvailableSubCommands() {
		return b.String()
	}
	fmt.Fprintf(&b, "\nUsage:\n  %s\n", usageLine(cmd))
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	writeCommands(&b, "Commands", cmd, (*cobra.Command).IsAvailableCommand)
	writeCommands(&b, "Topics", cmd, (*cobra.Command).IsAdditionalHelpTopicCommand)
	own, shared := splitFlags(cmd)
	writeFlagHelp(&b, "Flags", own)
	writeFlagHelp(&b, "Client flags", shared)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nMore about a command: %s COMMAND --help\n", cmd.CommandPath())
	}
	return b.String()
}

func usageLine(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " COMMAND [flags]"
	}
	return cmd.UseLine()
}

func writeCommands(b *strings.Builder, title string, cmd *cobra.Command, shown func(*cobra.Command) bool) {
	var lines []string
	for _, c := range cmd.Commands() {
		if shown(c) || c.Name() == "help" && title == "Commands" {
			lines = append(lines, fmt.Sprintf("  %-12s %s\n", c.Name(), c.Short))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n%s:\n%s", title, strings.Join(lines, ""))
	}
}

// splitFlags parts a client's flags into its own and those that all clients share.
func splitFlags(cmd *cobra.Command) (own, shared []*pflag.Flag) {
	cmd.InitDefaultHelpFlag()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Hidden:
		case sectionOf(f) == sectionClient, cmd.Annotations[noteSection] == sectionClient && f.Name == "config":
			shared = append(shared, f)
		default:
			own = append(own, f)
		}
	})
	return own, shared
}

func writeFlagHelp(b *strings.Builder, title string, flags []*pflag.Flag) {
	if len(flags) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	names := make([]string, len(flags))
	width := 0
	for i, f := range flags {
		names[i] = flagName(f)
		width = max(width, min(len(names[i]), helpWidth/3+2))
	}
	for i, f := range flags {
		name := names[i]
		for _, line := range wrapText(flagMeaning(f), helpWidth-width-2) {
			if len(name) > width {
				fmt.Fprintln(b, name)
				name = ""
			}
			fmt.Fprintf(b, "%-*s  %s\n", width, name, line)
			name = ""
		}
	}
}

func flagName(f *pflag.Flag) string {
	name := "      --" + f.Name
	if f.Shorthand != "" {
		name = "  -" + f.Shorthand + ", --" + f.Name
	}
	if kind, _ := pflag.UnquoteUsage(f); kind != "" {
		name += " " + kind
	}
	return name
}

func flagMeaning(f *pflag.Flag) string {
	_, meaning := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "", "0", "false":
		return meaning
	}
	return meaning + " (default " + f.DefValue + ")"
}

// wrapText breaks text into lines of at most width columns, at spaces.
func wrapText(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
