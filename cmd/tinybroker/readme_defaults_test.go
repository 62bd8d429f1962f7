package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// statedDefaults are the two forms in which pages name the default of a setting in passing.
var statedDefaults = []*regexp.Regexp{
	regexp.MustCompile("`-?-?([a-z_-]+)`(?: slots)? \\((\\d+ ?(?:ms|s|m|h|KiB|MiB|GiB)?)(?: messages)?\\)"),
	regexp.MustCompile("`-?-?([a-z_-]+)`(?: for each member)?, (\\d+ ?(?:ms|s|m|h|KiB|MiB|GiB)?) by default"),
}

// Where a page says what the default of a setting is, it is.
func TestDocumentedDefaults(t *testing.T) {
	found := 0
	for _, path := range documents(t) {
		text := strings.Join(strings.Fields(readFile(t, path)), " ")
		for _, form := range statedDefaults {
			for _, m := range form.FindAllStringSubmatch(text, -1) {
				defaults := defaultsOf(strings.ReplaceAll(m[1], "_", "-"))
				if len(defaults) == 0 {
					continue // of another program
				}
				found++
				if !anyIs(defaults, m[2]) {
					t.Errorf("%s: %s, but the default is %s", pageName(path), m[0], strings.Join(defaults, " or "))
				}
			}
		}
	}
	if found < 12 {
		t.Errorf("only %d found", found)
	}
	for said, is := range map[string]string{"60 s": "1m0s", "32 MiB": "32MiB", "5": "5", "10000": "10000"} {
		if !anyIs([]string{is}, said) {
			t.Errorf("%s is not taken for %s", said, is)
		}
	}
	for said, is := range map[string]string{"6 s": "1m0s", "33 MiB": "32MiB", "5": "6"} {
		if anyIs([]string{is}, said) {
			t.Errorf("%s is taken for %s", said, is)
		}
	}
}

// defaultsOf are the defaults of a flag, of all commands that have it.
func defaultsOf(flag string) []string {
	var defaults []string
	walk(testRoot(), func(c *cobra.Command) {
		if f := c.Flags().Lookup(flag); f != nil {
			defaults = append(defaults, f.DefValue)
		}
	})
	return defaults
}

func anyIs(defaults []string, said string) bool {
	want := quantity(said)
	for _, d := range defaults {
		if quantity(d) == want {
			return true
		}
	}
	return false
}

// quantity is a number, a size in bytes or a duration in nanoseconds.
func quantity(text string) int64 {
	text = strings.ReplaceAll(text, " ", "")
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if d, err := time.ParseDuration(text); err == nil {
		return int64(d)
	}
	if n, err := parseSize(text); err == nil {
		return n
	}
	return -1
}

var (
	asOf     = regexp.MustCompile(`(?m)^Of [^\n]*\d`)
	useWhen  = regexp.MustCompile(`(?m)^## Use (.+) when$`)
	measured = regexp.MustCompile(`\d(\.\d+)? ?([kM] ?)?(messages/s|calls/s|msg/s|/s\b|µs)|\d times (as )?(fast|slow)`)
)

// A comparison says of which version it is, when to use the other, and when this; figures are on the page of those that were measured.
func TestDocumentedComparisons(t *testing.T) {
	pages := 0
	for _, path := range documents(t) {
		name := pageName(path)
		if !strings.HasPrefix(name, "docs/compare/") {
			continue
		}
		text := readFile(t, path)
		if m := measured.FindString(text); m != "" {
			t.Errorf("%s has a figure, %q, which belongs to docs/benchmarks.md", name, m)
		}
		if strings.HasSuffix(name, "/README.md") {
			continue
		}
		pages++
		if !asOf.MatchString(text) {
			t.Errorf("%s does not say of which version it is", name)
		}
		when := useWhen.FindAllStringSubmatch(text, -1)
		if len(when) != 2 || when[0][1] == "tinybroker" || when[1][1] != "tinybroker" {
			t.Errorf("%s: when to use the other, and when this? %q", name, when)
			continue
		}
		_, theirs, _ := strings.Cut(text, when[0][0])
		theirs, ours, _ := strings.Cut(theirs, when[1][0])
		ours, _, _ = strings.Cut(ours, "\n## ")
		if a, b := strings.Count(theirs, "\n- "), strings.Count(ours, "\n- "); a < 3 || b < 3 || a < b-1 {
			t.Errorf("%s: %d reasons for the other and %d for this", name, a, b)
		}
	}
	if pages < 7 {
		t.Errorf("only %d comparisons", pages)
	}
}
