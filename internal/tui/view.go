package tui

import (
	"fmt"
	"strings"
)

// The smallest window that there is room for anything useful in.
const (
	minWidth  = 40
	minHeight = 10
)

// View draws the screen: never wider nor taller than the window.
func (m *model) View() string {
	switch {
	case m.width == 0 || m.height == 0:
		return ""
	case m.tooSmall():
		needs := fmt.Sprintf("needs %dx%d", minWidth, minHeight)
		if text := fmt.Sprintf("too small: %dx%d, %s", m.width, m.height, needs); width(text) <= m.width {
			return text
		}
		return cut(needs, m.width, "")
	}
	lines := m.headerLines()
	body := m.bodyLines()
	for len(body) < m.bodyHeight() {
		body = append(body, "")
	}
	lines = append(lines, body[:m.bodyHeight()]...)
	lines = append(lines, m.footerLine())
	return strings.Join(lines, "\n")
}

// tooSmall reports whether the window has no room for anything but saying so.
func (m *model) tooSmall() bool { return m.width < minWidth || m.height < minHeight }

// headerHeight is how many lines are above the body.
func (m *model) headerHeight() int {
	if m.height < 16 {
		return 2 // the broker, the views
	}
	return 4 // and the rates between them
}

// bodyHeight is how many lines there are for what the view is about.
func (m *model) bodyHeight() int { return max(0, m.height-m.headerHeight()-1) }

func (m *model) bodyLines() []string {
	s := m.screen()
	switch {
	case m.help:
		lines := m.helpLines()
		return lines[min(m.scroll, len(lines)):]
	case s.record != nil:
		lines := m.recordLines()
		return lines[min(s.scroll, len(lines)):]
	case s.snap == nil:
		return []string{"", m.env.styles.draw(toneFaint, "   waiting for the broker")}
	}
	f := m.frame()
	e := f.env
	if !m.link.lostAt.IsZero() { // what is shown is not true any more
		gray := *e
		gray.styles = styles{}
		f.env = &gray
	}
	var lines []string
	for i := range s.panels {
		if p := &s.panels[i]; p.height > 0 {
			lines = append(lines, m.panelLines(f, s, p, i == s.focus)...)
		}
	}
	if m.hasPane() {
		lines = append(lines, m.paneLines(f, s)...)
	}
	if f.env != e {
		for i := range lines {
			lines[i] = e.styles.draw(toneFaint, lines[i])
		}
	}
	return lines
}

// emptyText is what a panel without rows says.
func (s *screen) emptyText(e *env, p *panel) string {
	if s.filter != "" {
		return "nothing here contains " + quote(e.name(s.filter))
	}
	return p.empty
}

// panelLines are a title, the heads of the columns, and as many rows as the panel is high. The column they are sorted by never goes.
func (m *model) panelLines(f *frame, s *screen, p *panel, focused bool) []string {
	heads, by := p.rows.heads(), m.orderOf(s, p)
	for i := range heads {
		if heads[i].sort != "" && heads[i].sort == by.column {
			heads[i].rank = 0
		}
	}
	widths := fit(heads, m.width)
	lines := []string{m.rule(f, m.panelTitle(s, p), focused && len(s.panels) > 1), f.headLine(heads, widths, by)}
	if len(p.keys) == 0 {
		lines = append(lines, f.styles.draw(toneFaint, m.env.cut("   "+s.emptyText(m.env, p), m.width)))
	}
	for i := p.offset; i < min(p.offset+p.height, len(p.keys)); i++ {
		lines = append(lines, f.rowLine(p.rows, p.places[i], heads, widths, m.width, focused && i == p.at))
	}
	for len(lines) < p.height+2 {
		lines = append(lines, "")
	}
	return lines[:p.height+2]
}

// orderOf is by what a panel is sorted, for the mark in the heads.
func (m *model) orderOf(s *screen, p *panel) order {
	switch {
	case len(s.panels) == 1:
		return s.order
	case p == &s.panels[0]:
		return order{column: "in"}
	case p == &s.panels[2]:
		return order{column: "time"}
	}
	return order{}
}

func (m *model) panelTitle(s *screen, p *panel) string {
	title := p.title
	if s.filter != "" {
		title += " with " + quote(m.env.name(s.filter))
	}
	return title
}

func quote(s string) string { return `"` + s + `"` }

// rule is a line with a title in it.
func (m *model) rule(f *frame, title string, strong bool) string {
	title = " " + f.cut(title, max(0, m.width-6)) + " "
	dash := f.rule
	left, right := strings.Repeat(dash, 2), strings.Repeat(dash, max(0, m.width-2-width(title)))
	t := toneText
	if strong {
		t = toneStrong
	}
	return f.styles.draw(toneFaint, left) + f.styles.draw(t, title) + f.styles.draw(toneFaint, right)
}

// layout gives each panel its height. The shares do not depend on how many rows there are, so that nothing jumps.
func (m *model) layout() {
	s := m.screen()
	body := m.bodyHeight()
	const frame = 2 // a title and the heads of the columns
	switch len(s.panels) {
	case 0:
		s.scroll = max(0, min(s.scroll, len(m.recordLines())-body))
		return
	case 1:
		if m.hasPane() {
			body -= m.paneHeight()
		}
		s.panels[0].show(body - frame)
		return
	}
	heights := make([]int, len(s.panels))
	if rows := body - len(s.panels)*frame; rows < 2*len(s.panels) {
		if s.focus < len(heights) {
			heights[s.focus] = body - frame // the one with the cursor, alone
		}
	} else {
		heights[2] = max(2, rows/4)
		heights[1] = (rows - heights[2]) / 2
		heights[0] = rows - heights[1] - heights[2]
	}
	for i := range s.panels {
		s.panels[i].show(heights[i])
	}
}
