package main

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

//go:embed docs_configuration.txt
var configurationText string

// configurationPage is docs/configuration.md: its text, with the tables of all settings in their places.
func configurationPage() []byte {
	serve := pflag.NewFlagSet(sectionServe, pflag.ContinueOnError)
	newServeOptions().addFlags(serve)
	client := pflag.NewFlagSet(sectionClient, pflag.ContinueOnError)
	newClientOptions().addFlags(client)
	return []byte(strings.NewReplacer(
		"{{serve}}\n", settingsTable(serve),
		"{{client}}\n", settingsTable(client),
	).Replace(configurationText))
}

// settingsTable has a row for each flag that the file may name.
func settingsTable(fs *pflag.FlagSet) string {
	var b strings.Builder
	b.WriteString("| setting | default | range | meaning |\n| --- | --- | --- | --- |\n")
	fs.SortFlags = false
	fs.VisitAll(func(f *pflag.Flag) {
		if sectionOf(f) == "" {
			return
		}
		_, usage := pflag.UnquoteUsage(f)
		values := "any " + f.Value.Type()
		if r, ok := f.Value.(ranged); ok {
			values = r.Range()
		}
		def := "none"
		if f.DefValue != "" {
			def = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", fileKey(f.Name), def, values, strings.ReplaceAll(usage, "|", `\|`))
	})
	return b.String()
}
