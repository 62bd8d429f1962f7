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
	return []byte(strings.NewReplacer(
		"{{serve}}\n", settingsTable(settingsInOrder(newServeOptions().addFlags)),
		"{{client}}\n", settingsTable(settingsInOrder(newClientOptions().addFlags)),
	).Replace(configurationText))
}

// settingsTable has a row for each setting.
func settingsTable(settings []*pflag.Flag) string {
	var b strings.Builder
	b.WriteString("| setting | default | range | meaning |\n| --- | --- | --- | --- |\n")
	for _, f := range settings {
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
	}
	return b.String()
}
