package tui

import (
	"math"
	"slices"
	"strings"
)

// glyphs are the characters of the screen that are not text.
type glyphs struct {
	ellipsis       string
	rule           string
	up, down       string // arrows of keys
	arrows         string // both
	rising, fall   string // marks of a sorted column: smallest first, largest first
	spark          []string
	bar            []string // parts of a cell, from an eighth or so to a whole one
	separator, dot string
}

var unicodeGlyphs = glyphs{
	ellipsis: "…", rule: "─", up: "↑", down: "↓", arrows: "↑↓", rising: "▲", fall: "▼",
	spark:     []string{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
	bar:       []string{"▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"},
	separator: "│", dot: "·",
}

var asciiGlyphs = glyphs{
	ellipsis: "~", rule: "-", up: "up", down: "down", arrows: "j/k", rising: "^", fall: "v",
	spark:     []string{"_", ".", ",", "-", "=", "+", "*", "#"},
	bar:       []string{"-", "#"},
	separator: "|", dot: ".",
}

// sparkline draws values in n columns, the newest at the right, against the largest of them. Where there are more values than columns, a column
// is the largest of its few: all the time is shown, and no peak is left out. Nothing is blank, so that a pause shows.
func (g *glyphs) sparkline(values []uint32, n int) string {
	if n <= 0 {
		return ""
	}
	shown := min(n, len(values))
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", n-shown))
	if shown == 0 {
		return b.String()
	}
	top := float64(max(1, slices.Max(values)))
	for i := range shown {
		v := slices.Max(values[i*len(values)/shown : (i+1)*len(values)/shown])
		if v == 0 {
			b.WriteByte(' ')
			continue
		}
		level := int(math.Ceil(float64(v)/top*float64(len(g.spark)))) - 1
		b.WriteString(g.spark[min(max(level, 0), len(g.spark)-1)])
	}
	return b.String()
}

// gauge draws a bar of n columns of which a fraction is filled. What is not empty shows, and what is not full does not look so.
func (g *glyphs) gauge(fraction float64, n int) string {
	if n <= 0 {
		return ""
	}
	if !(fraction > 0) {
		return strings.Repeat(" ", n)
	}
	steps := len(g.bar)
	filled := min(int(math.Round(fraction*float64(n*steps))), n*steps)
	filled = max(filled, 1)
	if fraction < 1 {
		filled = min(filled, n*steps-1)
	}
	s := strings.Repeat(g.bar[steps-1], filled/steps)
	cells := filled / steps
	if part := filled % steps; part > 0 {
		s += g.bar[part-1]
		cells++
	}
	return s + strings.Repeat(" ", n-cells)
}
