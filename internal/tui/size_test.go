package tui

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"
)

// hostileNames are what strangers may call things.
var hostileNames = []string{
	"", "x", "orders.created",
	strings.Repeat("a", 512), strings.Repeat("世界", 170), strings.Repeat("é", 256), strings.Repeat("क्षि", 40),
	"e" + strings.Repeat("\u0301", 200), strings.Repeat("\u0301", 20), "👩‍👩‍👧‍👦🏽🇩🇪❤️", "שלום.עולם", "مرحبا", "한국어\u1100\u1161\u11a8",
	"\x1b[2J\x1b]0;x\a\x1b]52;c;aGk=\a", "\x9b1m\u009b31m", "a\u202eb\u2066c\u2069\u200f", "a\u200bb\u00adc\ufeff", "line\nbreak\r\ttab",
	"\xff\xfe\x00", "\U000e0041\U000e0001", "ｆｕｌｌ　ｗｉｄｔｈ", "\u3164\uffa0", "a\u2028b\u2029c", "\ue000\U0010fffd", "%s%d%!", `back\slash\x1b`, "…─▏",
}

func hostileName(i int) string { return hostileNames[i%len(hostileNames)] }

// checked are lines that have been looked at, and how wide they are: most of them come again and again.
var checked = map[string]int{}

// checkFrame fails when a frame is wider or taller than the window, or drives the terminal.
func checkFrame(t *testing.T, s *stage, w, h int, where string) {
	t.Helper()
	view := s.View()
	if w == 0 || h == 0 {
		if view != "" {
			t.Fatalf("%s at %dx%d: draws %q into nothing", where, w, h, view)
		}
		return
	}
	lines := strings.Split(view, "\n")
	if len(lines) > h {
		t.Fatalf("%s at %dx%d: %d lines", where, w, h, len(lines))
	}
	for i, line := range lines {
		if checked[line] > 0 && checked[line] <= w {
			continue
		}
		plain := ansi.Strip(line)
		checked[line] = width(plain)
		if n := checked[line]; n > w {
			t.Fatalf("%s at %dx%d: line %d is %d columns wide: %q", where, w, h, i, n, line)
		}
		// Terminals measure in one of these two ways. That ours is never less is a property of its own; now and then it is
		// checked for whole lines.
		if (w+h)%8 == 0 && max(ansi.StringWidth(plain), ansi.StringWidthWc(plain)) > w {
			t.Fatalf("%s at %dx%d: line %d is too wide: %q", where, w, h, i, line)
		}
		for _, r := range plain {
			if unicode.IsControl(r) || odd(r) {
				t.Fatalf("%s at %dx%d: line %d holds %U: %q", where, w, h, i, r, line)
			}
		}
	}
	if w >= minWidth && h >= minHeight && len(lines) != h {
		t.Fatalf("%s at %dx%d: %d lines do not fill the window", where, w, h, len(lines))
	}
}

// situations are what the screen may be in the middle of.
var situations = []struct{ name, keys string }{
	{"overview", "1"}, {"second panel", "1 tab"}, {"topics", "2 down"}, {"topic", "2 G enter"}, {"subscriptions", "3 G"}, {"subscription", "3 down enter"},
	{"groups", "4"}, {"members", "4 enter"}, {"member", "4 enter enter"}, {"evictions", "5 pgdown"}, {"eviction", "5 enter down"},
	{"help", "?"}, {"filter", "3 / a 世 b"}, {"close", "3 G x c l"}, {"paused", "2 space"},
}

// Whatever the size, from nothing to 200x60, whatever the names: nothing is wider than its window, nothing taller, and
// nothing panics. Each size is drawn in one situation, the next size in the next one.
func TestEverySize(t *testing.T) {
	snap := many(len(hostileNames), hostileName)
	var stages []*stage
	for _, color := range []bool{false, true} {
		for _, c := range situations {
			s := newStage(t, Options{Color: color, Address: hostileNames[13]}, 80, 24)
			s.gets(snap)
			for k := range strings.FieldsSeq(c.keys) {
				s.press(k)
				s.gets(snap)
			}
			if color { // every state once, not both with and without colours
				s.link.err, s.link.lostAt, s.link.retryAt = fmt.Errorf("%s", hostileNames[13]), s.time, s.time.Add(time.Second)
			}
			stages = append(stages, s)
		}
	}
	next := 0
	for h := range 61 {
		for w := range 201 {
			s := stages[next%len(stages)]
			s.send(tea.WindowSizeMsg{Width: w, Height: h})
			if s.related.of != "" && s.related.rows == nil {
				s.send(relatedMsg{of: s.related.of, snap: snap})
			}
			checkFrame(t, s, w, h, situations[next%len(situations)].name)
			next++
		}
	}
}

// The same, with the sizes, keys, names and snapshots in a random order.
func TestRandomWalk(t *testing.T) {
	keys := []string{
		"1", "2", "3", "4", "5", "tab", "shift+tab", "up", "down", "pgup", "pgdown", "g", "G", "enter", "esc", "/", "s", "R", "space", "+", "-", "b", "?", "x", "c", "backspace", "世",
	}
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := newStage(t, Options{Color: seed%2 == 0, ASCII: seed%3 == 0}, 80, 24)
		w, h := 80, 24
		var trail []string
		for range 300 {
			switch r.IntN(4) {
			case 0:
				w, h = r.IntN(201), r.IntN(61)
				s.send(tea.WindowSizeMsg{Width: w, Height: h})
			case 1:
				s.gets(many(r.IntN(60), func(int) string { return hostileName(r.IntN(1000)) }))
			default:
				k := keys[r.IntN(len(keys))]
				trail = append(trail, k)
				s.press(k)
			}
			s.after(time.Duration(r.IntN(1500)) * time.Millisecond)
			checkFrame(t, s, w, h, fmt.Sprintf("seed %d, %v", seed, trail))
		}
	}
}

// Without colours nothing but text is drawn; with them, they do not change the text.
func TestColorsChangeNothingButColors(t *testing.T) {
	for _, c := range situations {
		views := map[bool]string{}
		for _, color := range []bool{false, true} {
			s := newStage(t, Options{Color: color}, 120, 40)
			s.gets(sample())
			for k := range strings.FieldsSeq(c.keys) {
				s.press(k)
				s.gets(sample())
			}
			views[color] = s.View()
		}
		if strings.Contains(views[false], "\x1b") {
			t.Errorf("%s: escape sequences without colours", c.name)
		}
		if !strings.Contains(views[true], "\x1b[") {
			t.Errorf("%s: no colours", c.name)
		}
		if got := ansi.Strip(views[true]); got != views[false] {
			t.Errorf("%s: the text differs:\n%s\n%s", c.name, got, views[false])
		}
	}
}

func TestASCII(t *testing.T) {
	for _, c := range situations {
		s := newStage(t, Options{ASCII: true}, 120, 40)
		for k := range strings.FieldsSeq(c.keys) {
			s.press(k)
			s.gets(many(40, hostileName))
		}
		for _, r := range s.View() {
			if r > 0x7e || r < 0x20 && r != '\n' {
				t.Fatalf("%s: %U in\n%s", c.name, r, s.View())
			}
		}
	}
}

func TestTooSmall(t *testing.T) {
	s := newStage(t, Options{}, 39, 10)
	s.gets(sample())
	for w, want := range map[int]string{29: "too small: 29x10, needs 40x10", 20: "needs 40x10", 11: "needs 40x10"} {
		if got := newStage(t, Options{}, w, 10).View(); got != want {
			t.Errorf("%d columns: %q, want %q", w, got, want)
		}
	}
	if got := s.View(); got != "too small: 39x10, needs 40x10" {
		t.Errorf("%q", got)
	}
	s.send(tea.WindowSizeMsg{Width: 5, Height: 1})
	if got := s.View(); got != "needs" {
		t.Errorf("%q", got)
	}
	s.press("2")
	s.press("/")
	s.press("x")
	s.press("?")
	s.send(tea.WindowSizeMsg{Width: 40, Height: 10})
	s.shows("[1 Overview]", "busiest topics", "orders.created", "q quit")
	s.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	s.shows("last evictions")
}
