package main

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// kubernetesName matches what Kubernetes puts into the environment of every pod beside a service whose name begins with
// "tinybroker": TINYBROKER_SERVICE_HOST, TINYBROKER_PORT_7710_TCP_ADDR and so on. They are nobody's typing errors.
var kubernetesName = regexp.MustCompile(
	`^TINYBROKER(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// inEnvironment reports whether a setting's variable is set. An empty one counts as not set, and so does one that only describes the
// message that a command of sub --exec handles: what TINYBROKER_KEY holds there is no wish of the user's.
func inEnvironment(name string) bool {
	return os.Getenv(name) != "" && !describesMessage(name)
}

// describesMessage reports whether a variable was set by sub --exec to describe a message.
func describesMessage(name string) bool {
	return os.Getenv(execMarker) != "" && isMessageVariable(name)
}

// unknownEnvironment lists the set variables with the product's prefix that no command knows, each with what was
// probably meant. A misspelt variable must not leave a default in force unnoticed.
func unknownEnvironment(root *cobra.Command) []string {
	known := map[string]bool{}
	var names []string
	walk(root, func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			known[envName(f.Name)] = true
			if !isFlagOnly(f) {
				names = append(names, strings.TrimPrefix(envName(f.Name), envPrefix))
			}
		})
	})
	var unknown []string
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || known[name] || describesMessage(name) || kubernetesName.MatchString(name) {
			continue
		}
		text := name + ": no setting has this name"
		if near := nearest(strings.TrimPrefix(name, envPrefix), names); near != "" {
			text += "; did you mean " + envPrefix + near + "?"
		}
		unknown = append(unknown, text)
	}
	slices.Sort(unknown)
	return unknown
}
