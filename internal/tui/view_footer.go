package tui

import (
	"slices"
	"strconv"
	"strings"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// footerLine is the prompt, or a notice, or what the keys do; at its right how many rows there are.
func (m *model) footerLine() string {
	e := m.env
	if m.prompt != nil {
		return m.promptLine()
	}
	right := m.countText()
	room := m.width - width(right) - 1
	if m.notice.text != "" {
		left := e.pad(" "+m.notice.text, room, false)
		return e.styles.draw(m.notice.tone, left) + right
	}
	left := e.pad(" "+fitHints(m.hints(), room-1), room, false)
	return e.styles.draw(toneFaint, left) + e.styles.draw(toneFaint, right)
}

// fitHints joins as many hints as fit. The last two stay the longest, then the first ones.
func fitHints(hints []string, room int) string {
	const between = "  "
	for len(hints) > 2 && width(strings.Join(hints, between)) > room {
		hints = slices.Delete(hints, len(hints)-3, len(hints)-2)
	}
	return strings.Join(hints, between)
}

func (m *model) countText() string {
	if m.help {
		return ""
	}
	shown, all := m.screen().counts()
	switch {
	case all == 0:
		return ""
	case shown < all:
		return " " + strconv.Itoa(shown) + " of " + strconv.Itoa(all) + " "
	}
	return " " + plural(all, "row") + " "
}

// hints are the keys of use here.
func (m *model) hints() []string {
	s := m.screen()
	move, scroll := m.env.arrows+" move", m.env.arrows+" scroll"
	pause := "space pause"
	if m.paused {
		pause = "space resume"
	}
	switch {
	case m.help:
		return []string{scroll, "any other key closes this"}
	case s.record != nil:
		hints := []string{scroll, "esc back", pause}
		if id, _ := subscriptionOf(s.record); id != "" {
			hints = append(hints, "x close")
		}
		return append(hints, "? help", "q quit")
	case s.view == core.ViewOverview:
		return []string{move, "tab panel", "enter open", "/ filter", pause, "? help", "q quit"}
	}
	hints := []string{move, "enter open"}
	if len(m.opened) > 0 || s.filter != "" {
		hints = append(hints, "esc back")
	}
	hints = append(hints, "/ filter", "s sort", pause)
	if s.view == core.ViewSubscriptions || s.view == core.ViewMembers {
		hints = append(hints, "x close")
	}
	return append(hints, "? help", "q quit")
}

// promptLine shows the end of what was typed when it does not fit.
func (m *model) promptLine() string {
	e := m.env
	label := " " + e.cut(m.prompt.label, m.width-len(confirmation)-4) + ": "
	cursor := "_"
	room := max(0, m.width-width(label)-width(cursor))
	text := e.name(string(m.prompt.text))
	for width(text) > room {
		text = text[len(string([]rune(text)[:1])):]
	}
	line := e.styles.draw(toneStrong, label) + text + cursor
	if right := m.countText(); width(label)+width(text)+width(cursor)+width(right) <= m.width {
		return padDrawn(line, m.width-width(right)) + e.styles.draw(toneFaint, right)
	}
	return line
}
