package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// TestDocumentedPatterns checks every table whose columns are patterns, what they match and what they do not.
func TestDocumentedPatterns(t *testing.T) {
	rows := 0
	quoted := regexp.MustCompile("`([^`]*)`")
	for _, path := range documents(t) {
		inTable := false
		for i, line := range strings.Split(readFile(t, path), "\n") {
			cells := strings.Split(line, "|")
			switch {
			case len(cells) != 5:
				inTable = false
				continue
			case strings.HasPrefix(strings.TrimSpace(cells[1]), "pattern") && strings.TrimSpace(cells[2]) == "matches":
				inTable = true
				continue
			case !inTable || strings.Contains(line, "---"):
				continue
			}
			rows++
			var words [3][]string
			for c := range words {
				for _, m := range quoted.FindAllStringSubmatch(cells[c+1], -1) {
					words[c] = append(words[c], m[1])
				}
			}
			set, err := core.ParsePatterns(words[0])
			if err != nil {
				t.Errorf("%s:%d: %v", path, i+1, err)
				continue
			}
			for c, want := range []bool{true, false} {
				for _, topic := range words[c+1] {
					if set.Match(topic) != want {
						t.Errorf("%s:%d: %q against %q: want match %v", path, i+1, words[0], topic, want)
					}
				}
			}
		}
	}
	if rows < 10 {
		t.Errorf("only %d rows of patterns found", rows)
	}
}

func TestDocumentedLimits(t *testing.T) {
	page := readFile(t, filepath.Join(root, "docs", "topics-and-patterns.md"))
	for _, row := range []struct {
		what string
		most int
	}{
		{"bytes of a pattern", core.MaxPatternBytes},
		{"alternatives of a pattern after its braces are expanded", core.MaxPatternAlternatives},
		{"segments of an alternative", core.MaxPatternSegments},
		{"wildcards of an alternative (each `*`, `?`, `[ ]`, `**`)", core.MaxPatternWildcards},
		{"`**` of an alternative", core.MaxPatternDoubleStars},
		{"patterns of a subscription, counted after their braces are expanded", core.MaxSetPatterns},
		{"bytes of them all, likewise", core.MaxSetBytes},
		{"wildcards of them all", core.MaxSetWildcards},
	} {
		if want := fmt.Sprintf("| %s | %d |", row.what, row.most); !strings.Contains(page, want) {
			t.Errorf("no row %q", want)
		}
	}
}
