package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every page of the manual is one that a strict reader of the language takes, and shows what --help does.
func TestManPages(t *testing.T) {
	pages := manPages(testRoot())
	for _, want := range []string{"tinybroker.1", "tinybroker-serve.1", "tinybroker-pub.1", "tinybroker-completion.1"} {
		if pages[want] == nil {
			t.Errorf("no page %s", want)
		}
	}
	if _, err := exec.LookPath("mandoc"); err != nil {
		if os.Getenv("TINYBROKER_REQUIRE_TOOLS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	var shown strings.Builder
	for name, page := range pages {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, page, 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := exec.Command("mandoc", "-T", "lint", "-W", "style", path).Output() // it fails for what is passed over below
		for line := range strings.Lines(string(out)) {
			if !isPassedOver(line) {
				t.Error(strings.TrimSpace(line))
			}
		}
		text, err := exec.Command("mandoc", "-T", "utf8", "-O", "width=78", path).Output()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		shown.Write(text)
	}
	for _, want := range []string{
		"tinybroker - a small in-memory message broker",
		"--consumer-capacity number",
		"sub 'deploy.**'",
		`printf 'alice:1\nbob:2\n' | tinybroker pub scores -K :`,
		"  orders.{eu,us}.*  alternatives\n",
		"SEE ALSO",
		"the configuration is wrong.",
	} {
		if !strings.Contains(unbold(shown.String()), want) {
			t.Errorf("the pages do not show %q", want)
		}
	}
}

// isPassedOver knows what is meant to be as it is: no date; lines of help as wide as a terminal, indented.
func isPassedOver(message string) bool {
	return slices.ContainsFunc([]string{"missing date", "longer than 80 bytes", "lower case character in document title"},
		func(known string) bool { return strings.Contains(message, known) })
}

// unbold takes away what makes letters bold or underlined on a terminal of old: a letter, a backspace, a letter.
func unbold(text string) string {
	var kept []rune
	for _, r := range text {
		if r == '\b' && len(kept) > 0 {
			kept = kept[:len(kept)-1]
			continue
		}
		kept = append(kept, r)
	}
	return string(kept)
}
