package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTroubleshooting: docs/operations.md quotes what the program says, and leaves out no warning and no error of the log.
func TestTroubleshooting(t *testing.T) {
	source := sourceText(t)
	_, section, found := strings.Cut(readFile(t, filepath.Join(root, "docs", "operations.md")), "\n## Troubleshooting\n")
	if !found {
		t.Fatal("no such section")
	}
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows++
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			if !strings.Contains(source, m[1]) {
				t.Errorf("the program never says %q", m[1])
			}
		}
	}
	if rows < 15 {
		t.Errorf("only %d rows", rows)
	}
	for _, m := range regexp.MustCompile(`\.(?:Warn|Error)\("([^"]+)"`).FindAllStringSubmatch(source, -1) {
		if !strings.Contains(section, m[1]) {
			t.Errorf("%q is logged, and there is no row for it in docs/operations.md", m[1])
		}
	}
}

// sourceText is the program's source, tests left out.
func sourceText(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, dir := range []string{"cmd/tinybroker", "internal/auth", "internal/core", "internal/rpc"} {
		paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(data)
		}
	}
	return text.String()
}
