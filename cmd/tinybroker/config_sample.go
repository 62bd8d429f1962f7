package main

import (
	"bytes"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// sampleConfig is a configuration file that changes nothing: every setting with what it is for and its default, all of it
// commented out. Lines of text begin with "# ", settings with "#" alone.
func sampleConfig(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString(`# Configuration of tinybroker. What is commented out is the default; take the # off to change it.
# A flag of the command line and an environment variable (TINYBROKER_MAX_MEMORY for max_memory) win over this file.
# Names that are not known stop the start. Try a change with: tinybroker serve --check-config
`)
	for _, f := range settingsInOrder(newServeOptions().addFlags) {
		writeSample(&b, "", f, f.DefValue)
	}
	b.WriteString("\n# Settings that all client commands share: pub, sub, top, ls, status, bench.\n#client:\n")
	for _, f := range settingsInOrder(newClientOptions().addFlags) {
		writeSample(&b, "  ", f, sharedDefault(root, f))
	}
	return b.Bytes()
}

// settingsInOrder are the settings that addFlags declares, as they are declared.
func settingsInOrder(addFlags func(*pflag.FlagSet)) []*pflag.Flag {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	addFlags(fs)
	var settings []*pflag.Flag
	fs.VisitAll(func(f *pflag.Flag) {
		if sectionOf(f) != "" {
			settings = append(settings, f)
		}
	})
	return settings
}

// writeSample writes one setting. One without a default has no value.
func writeSample(b *bytes.Buffer, indent string, f *pflag.Flag, def string) {
	_, usage := pflag.UnquoteUsage(f)
	b.WriteString("\n")
	for _, line := range wrapText(usage, 100) {
		b.WriteString("# " + line + "\n")
	}
	text := "#" + indent + fileKey(f.Name) + ":"
	if def != "" {
		text += " " + sampleValue(f)
	}
	b.WriteString(text + "\n")
}

func sampleValue(f *pflag.Flag) string {
	value := yamlValue(f)
	value.Style |= yaml.FlowStyle
	text, err := yaml.Marshal(value)
	if err != nil {
		return "" // a value that a flag has can be written
	}
	return strings.TrimSpace(string(text))
}

// sharedDefault is the default that a client setting has in all commands; empty where they differ.
func sharedDefault(root *cobra.Command, setting *pflag.Flag) string {
	defaults := []string{setting.DefValue}
	walk(root, func(c *cobra.Command) {
		if f := c.Flags().Lookup(setting.Name); f != nil && sectionOf(f) == sectionClient {
			defaults = append(defaults, f.DefValue)
		}
	})
	if len(slices.Compact(defaults)) > 1 {
		return ""
	}
	return setting.DefValue
}
