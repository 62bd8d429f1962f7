package tui

import (
	"context"
	"strings"
	"time"
	"unicode"

	tea "github.com/charmbracelet/bubbletea"
)

// prompt is a line that the user types. In it, only esc, enter and ctrl+c, and the keys that edit, are no text.
type prompt struct {
	label  string
	text   []rune
	change func(text string) tea.Cmd // after each change; may be nil
	enter  func(text string) tea.Cmd
	escape func() tea.Cmd // may be nil
}

// maxPrompt is the most characters a prompt takes: more than any name has.
const maxPrompt = 256

// filterPause is how long a filter must not change before the broker is asked.
const filterPause = 120 * time.Millisecond

// typed handles a key while the prompt is open.
func (m *model) typed(msg tea.KeyMsg) tea.Cmd {
	p := m.prompt
	before := string(p.text)
	switch msg.Type {
	case tea.KeyEsc:
		m.prompt = nil
		if p.escape != nil {
			return p.escape()
		}
		return nil
	case tea.KeyEnter:
		m.prompt = nil
		return p.enter(before)
	case tea.KeyBackspace, tea.KeyCtrlH:
		p.text = p.text[:max(0, len(p.text)-1)]
	case tea.KeyCtrlU:
		p.text = nil
	case tea.KeyCtrlW:
		p.text = withoutLastWord(p.text)
	case tea.KeyRunes, tea.KeySpace:
		for _, r := range msg.Runes {
			if !unicode.IsControl(r) && r != unicode.ReplacementChar && len(p.text) < maxPrompt {
				p.text = append(p.text, r)
			}
		}
	}
	if text := string(p.text); text != before && p.change != nil {
		return p.change(text)
	}
	return nil
}

// withoutLastWord cuts off the last word and the blanks after it.
func withoutLastWord(text []rune) []rune {
	end := len(text)
	for end > 0 && unicode.IsSpace(text[end-1]) {
		end--
	}
	for end > 0 && !unicode.IsSpace(text[end-1]) {
		end--
	}
	return text[:end]
}

// askFilter opens the prompt of the filter, which applies as it is typed.
func (m *model) askFilter() {
	s := m.screen()
	if s.record != nil {
		return
	}
	before := s.filter
	m.prompt = &prompt{
		label:  "filter",
		text:   []rune(before),
		change: m.filterSoon,
		enter:  func(string) tea.Cmd { return nil },
		escape: func() tea.Cmd {
			if s.filter == before {
				return nil
			}
			return m.filter(before)
		},
	}
}

// filterSoon filters once nothing more was typed for a moment.
func (m *model) filterSoon(text string) tea.Cmd {
	s := m.screen()
	s.filter, s.resort = text, true
	m.version++
	return m.jobs.after(filterPause, askMsg{m.version})
}

// filter filters now.
func (m *model) filter(text string) tea.Cmd {
	s := m.screen()
	s.filter, s.resort = text, true
	m.version++
	return m.askAnew()
}

// confirmation is what has to be typed for a subscription to be closed.
const confirmation = "close"

// askClose asks whether the subscription under the cursor is really to be closed. It is settled now which one that is, whatever
// happens to the rows while the answer is typed.
func (m *model) askClose() {
	id, client := subscriptionOf(m.screen().chosen())
	if id == "" {
		m.tell(toneWarning, "there is no subscription here to close")
		return
	}
	label := "type " + quote(confirmation) + " to close " + m.env.cut(m.env.name(id), 20)
	if client != "" {
		label += " of " + m.env.cut(m.env.name(client), 20)
	}
	source := m.source
	m.prompt = &prompt{
		label: label,
		enter: func(text string) tea.Cmd {
			if strings.TrimSpace(text) != confirmation {
				m.tell(toneWarning, "not closed")
				return nil
			}
			return m.jobs.command(m.jobs.ctx, func(ctx context.Context) tea.Msg {
				ctx, cancel := context.WithTimeout(ctx, callPatience)
				defer cancel()
				return closedMsg{id, source.CloseSubscription(ctx, id)}
			})
		},
	}
}
