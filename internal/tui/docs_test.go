package tui

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// The page about top shows the golden screens, without their empty lines.
func TestDocumentedScreens(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "top.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"overview", "topics", "subs", "groups", "members", "evictions"} {
		golden, err := os.ReadFile(filepath.Join("testdata", name+"-80x24.txt"))
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(string(golden)) {
			if strings.TrimSpace(line) != "" {
				lines = append(lines, line)
			}
		}
		if screen := strings.Join(lines, ""); !strings.Contains(string(page), "```text by=TestDocumentedScreens\n"+screen+"```\n") {
			t.Errorf("docs/top.md does not show %s as it is:\n%s", name, screen)
		}
	}
}

// It names every column.
func TestDocumentedColumns(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "top.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range append(views[:], core.ViewMembers) {
		s := newScreen(v)
		for i := range s.panels {
			for _, h := range s.panels[i].rows.heads() {
				if !strings.Contains(string(page), h.title) {
					t.Errorf("docs/top.md does not mention %s", h.title)
				}
			}
		}
	}
}
