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

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		walk(sub, visit)
	}
}

// nearest is the name that differs from word in the fewest letters, if they are few, and at most half of the word's.
func nearest(word string, names []string) string {
	slices.Sort(names)
	best, least := "", min(max(2, len(word)/4), len(word)/2)+1
	for _, name := range names {
		if d := distance(word, name); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance counts the letters to insert, drop, change or swap with the next one to turn a into b (Levenshtein, with
// neighbours exchanged).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
