package tui

import (
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

const benchRows = 10_000

// BenchmarkFrame draws a screen of 10 000 rows.
func BenchmarkFrame(b *testing.B) {
	for _, c := range []struct {
		name string
		view core.View
		size tea.WindowSizeMsg
	}{
		{"overview-80x24", core.ViewOverview, tea.WindowSizeMsg{Width: 80, Height: 24}},
		{"topics-80x24", core.ViewTopics, tea.WindowSizeMsg{Width: 80, Height: 24}},
		{"topics-200x60", core.ViewTopics, tea.WindowSizeMsg{Width: 200, Height: 60}},
		{"subs-200x60", core.ViewSubscriptions, tea.WindowSizeMsg{Width: 200, Height: 60}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := newStage(b, Options{View: c.view, Color: true, Limit: benchRows}, c.size.Width, c.size.Height)
			s.gets(many(benchRows, numbered))
			s.press("G")
			b.ReportAllocs()
			for b.Loop() {
				s.View()
			}
		})
	}
}

// BenchmarkUpdate takes a snapshot of 10 000 rows, whose order is kept, and draws it: what one second of watching costs.
func BenchmarkUpdate(b *testing.B) {
	for _, c := range []struct {
		name string
		view core.View
	}{{"topics", core.ViewTopics}, {"subs", core.ViewSubscriptions}} {
		b.Run(c.name, func(b *testing.B) {
			s := newStage(b, Options{View: c.view, Color: true, Limit: benchRows}, 120, 40)
			snap := many(benchRows, numbered)
			s.gets(snap)
			s.press("down")
			b.ReportAllocs()
			for b.Loop() {
				s.after(time.Millisecond)
				s.gets(snap)
				s.View()
			}
		})
	}
}
