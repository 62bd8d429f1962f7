package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newDocsCmd writes what is made of the same texts as --help: docs/cli.md, the manual and the sample configuration. A test
// holds them together.
func newDocsCmd(a *app) *cobra.Command {
	dir := "docs"
	cmd := &cobra.Command{
		Use:    "docs",
		Short:  "Write the command line reference, the manual and a sample configuration",
		Args:   noArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := os.MkdirAll(filepath.Join(dir, "man"), 0o755); err != nil {
				return failf(exitIO, "docs: %w", err)
			}
			pages := madePages(cmd.Root())
			for _, name := range slices.Sorted(maps.Keys(pages)) {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, pages[name], 0o644); err != nil {
					return failf(exitIO, "docs: %w", err)
				}
				fmt.Fprintln(a.err, "wrote", path)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", dir, "`directory` to write to")
	return cmd
}

// madePages are all that docs writes, by path.
func madePages(root *cobra.Command) map[string][]byte {
	pages := map[string][]byte{"cli.md": reference(root), "config.yaml": sampleConfig(root), "configuration.md": configurationPage()}
	for name, page := range manPages(root) {
		pages["man/"+name] = page
	}
	return pages
}

// reference is the whole command line as one Markdown page.
func reference(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString("# Command line\n\nMade from the program's own help by `go run ./cmd/tinybroker docs`; edit it there.\n\n")
	b.WriteString("Every long flag can be set in the environment: `--connect-timeout` is `TINYBROKER_CONNECT_TIMEOUT`. ")
	fmt.Fprintf(&b, "Exceptions are %s. ", strings.Join(flagOnlyNames(root), ", "))
	b.WriteString("An empty variable counts as not set; lists are parted by commas. ")
	b.WriteString("`serve` does not start with a variable of this prefix that it does not know; clients warn. ")
	b.WriteString("Variables that Kubernetes makes for a service of this name are passed over.\n\n")
	b.WriteString("The configuration file is YAML. At the top level it holds the flags of `serve` under their names with `_` for `-`, ")
	b.WriteString("below `client:` those that all clients share:\n\n")
	b.WriteString("```yaml\nlisten: [127.0.0.1:7710]\nmax_memory: 1GiB\nclient:\n  server: 127.0.0.1:7710\n  connect_timeout: 2s\n```\n\n")
	b.WriteString("Unknown keys, keys given twice and values out of range are errors that name file and line. ")
	b.WriteString("Durations need a unit (`500ms`, `5s`); `MiB` is 1024 × 1024 bytes, `MB` is 1 000 000.\n")
	for _, c := range documented(root) {
		writeCommand(&b, c)
	}
	return b.Bytes()
}

// flagOnlyNames are the flags of all commands that have no variable.
func flagOnlyNames(root *cobra.Command) []string {
	var names []string
	walk(root, func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Annotations[noteFlagOnly] != nil {
				names = append(names, "`--"+f.Name+"`")
			}
		})
	})
	slices.Sort(names)
	return slices.Compact(names)
}

func documented(root *cobra.Command) []*cobra.Command {
	root.InitDefaultCompletionCmd()
	list := []*cobra.Command{root}
	walk(root, func(c *cobra.Command) {
		if c.HasParent() && !c.Hidden && c.Name() != "help" && c.Parent().Name() != "completion" {
			list = append(list, c)
		}
	})
	return list
}

func writeCommand(b *bytes.Buffer, c *cobra.Command) {
	if !c.Runnable() {
		fmt.Fprintf(b, "\n## %s\n\n```text\n%s\n```\n", c.Name(), strings.TrimSpace(c.Long))
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), c.Short)
	fmt.Fprintf(b, "\n```text\n%s\n```\n", usageLine(c))
	if c.Long != "" {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(c.Long))
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n\n```sh\n%s\n```\n", dedent(c.Example))
	}
	writeFlags(b, c)
	for _, sub := range c.Commands() {
		if !sub.Hidden && c.HasParent() {
			fmt.Fprintf(b, "\n- `%s`: %s\n", sub.CommandPath(), sub.Short)
		}
	}
}

func writeFlags(b *bytes.Buffer, c *cobra.Command) {
	c.InitDefaultHelpFlag()
	var rows []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		rows = append(rows, flagRow(f))
	})
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| flag | default | meaning |\n|---|---|---|\n%s", strings.Join(rows, ""))
}

func flagRow(f *pflag.Flag) string {
	kind, usage := pflag.UnquoteUsage(f)
	name := "`--" + f.Name
	if f.Shorthand != "" {
		name = "`-" + f.Shorthand + ", --" + f.Name
	}
	if kind != "" {
		name += " " + kind
	}
	def := f.DefValue
	if def != "" {
		def = "`" + def + "`"
	}
	escape := strings.NewReplacer("|", `\|`)
	return fmt.Sprintf("| %s` | %s | %s |\n", escape.Replace(name), escape.Replace(def), escape.Replace(usage))
}

// dedent takes the two spaces off that help puts before examples.
func dedent(text string) string {
	lines := slices.Collect(strings.SplitSeq(text, "\n"))
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}
