package tui

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

var update = flag.Bool("update", false, "rewrite the golden screens")

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, []byte(got)) {
		t.Errorf("%s differs; if the change is meant, run: go test ./internal/tui -run %s -update\ngot:\n%s\nwant:\n%s", path, t.Name(), got, want)
	}
}

// goldenScreens are what the golden files show, each at two sizes.
var goldenScreens = []struct {
	name string
	o    Options
	play func(*stage)
}{
	{"overview", Options{}, func(*stage) {}},
	{"topics", Options{View: core.ViewTopics}, func(s *stage) { s.press("j") }},
	{"subs", Options{View: core.ViewSubscriptions}, func(s *stage) {}},
	{"groups", Options{View: core.ViewGroups}, func(s *stage) {}},
	{"evictions", Options{View: core.ViewEvictions}, func(s *stage) {}},
	{"members", Options{View: core.ViewGroups}, func(s *stage) {
		s.press("enter")
		s.gets(sample())
	}},
	{"topic-subs", Options{View: core.ViewTopics}, func(s *stage) {
		s.press("enter")
		s.gets(sample())
	}},
	{"subscription", Options{View: core.ViewSubscriptions}, func(s *stage) {
		s.press("enter")
		s.gets(sample())
	}},
	{"member", Options{View: core.ViewGroups}, func(s *stage) {
		s.press("enter")
		s.gets(sample())
		s.press("enter")
		s.gets(sample())
	}},
	{"eviction", Options{View: core.ViewEvictions}, func(s *stage) {
		s.press("enter")
		s.gets(sample())
	}},
	{"help", Options{}, func(s *stage) { s.press("?") }},
	{"paused", Options{}, func(s *stage) {
		s.press("space")
		s.after(12 * time.Second)
		s.send(tickMsg{})
	}},
	{"filtered", Options{View: core.ViewSubscriptions, Filter: "bill", Sort: "client", Reverse: true}, func(s *stage) { s.press("/ i n") }},
	{"closing", Options{View: core.ViewSubscriptions}, func(s *stage) { s.press("x c l o") }},
	{"disconnected", Options{}, func(s *stage) {
		s.send(watchEndedMsg{s.watch.number, errRefused})
		s.link.retryAt = s.time.Add(3 * time.Second)
	}},
	{"ascii", Options{ASCII: true}, func(s *stage) {}},
	{"empty", Options{}, func(s *stage) {
		empty := &core.Snapshot{Broker: core.Stats{Time: noon, Started: noon, MaxMemory: 512 << 20, RunID: "run-1"}}
		s.after(3 * time.Second)
		s.gets(empty)
	}},
}

func TestGoldenScreens(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {100, 30}} {
		for _, c := range goldenScreens {
			name := fmt.Sprintf("%s-%dx%d", c.name, size.width, size.height)
			t.Run(name, func(t *testing.T) {
				s := newStage(t, c.o, size.width, size.height)
				s.gets(sample())
				c.play(s)
				if s.related.of != "" {
					s.send(relatedMsg{of: s.related.of, snap: sample()})
				}
				lines := s.lines()
				for i := range lines {
					lines[i] = strings.TrimRight(lines[i], " ")
				}
				compareGolden(t, name, strings.Join(lines, "\n")+"\n")
			})
		}
	}
}
