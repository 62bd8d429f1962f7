package tui

import (
	"slices"
	"time"

	"github.com/charmbracelet/bubbles/key"
	tea "github.com/charmbracelet/bubbletea"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// press handles a key.
func (m *model) press(msg tea.KeyMsg) tea.Cmd {
	switch {
	case key.Matches(msg, m.keys.Interrupt):
		m.outcome = ErrInterrupted
		return tea.Quit
	case m.tooSmall() && !key.Matches(msg, m.keys.Quit, m.keys.Suspend):
		return nil // what it did would not be seen
	case m.prompt != nil && !m.tooSmall():
		return m.typed(msg)
	case msg.Type == tea.KeyRunes && len(msg.Runes) > 1:
		return m.pressEach(msg)
	case key.Matches(msg, m.keys.Quit):
		return tea.Quit
	case key.Matches(msg, m.keys.Suspend):
		return m.suspend()
	case m.help:
		m.pressHelp(msg)
		return nil
	case m.moved(msg):
		return nil
	}
	return m.act(msg)
}

// pressEach handles keys that were typed so fast that they came together. Text that is pasted where no text belongs is not
// taken for keys.
func (m *model) pressEach(msg tea.KeyMsg) tea.Cmd {
	if msg.Paste {
		return nil
	}
	cmds := make([]tea.Cmd, len(msg.Runes))
	for i, r := range msg.Runes {
		cmds[i] = m.press(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}})
	}
	return tea.Batch(cmds...)
}

// suspend gives the terminal back, lets the process be stopped, and draws again when it goes on.
func (m *model) suspend() tea.Cmd {
	if m.options.Suspend == nil {
		return nil
	}
	return giveBack(m.options.Suspend)
}

// giveBack has f called while the terminal is as it was, and then takes it and draws again.
func giveBack(f func()) tea.Cmd {
	return tea.Exec(suspension(f), func(error) tea.Msg { return resumedMsg{} })
}

// pressHelp scrolls the help; any other key closes it.
func (m *model) pressHelp(msg tea.KeyMsg) {
	switch {
	case key.Matches(msg, m.keys.Up):
		m.scroll = max(0, m.scroll-1)
	case key.Matches(msg, m.keys.Down):
		m.scroll = min(m.scroll+1, max(0, len(m.helpLines())-m.bodyHeight()))
	default:
		m.help, m.scroll = false, 0
	}
}

// moved handles the keys that move the cursor, and reports whether it was one.
func (m *model) moved(msg tea.KeyMsg) bool {
	s := m.screen()
	p := s.panel()
	var step int
	page := max(1, m.bodyHeight()-2)
	if p != nil && p.height > 0 {
		page = p.height
	}
	switch {
	case key.Matches(msg, m.keys.Up):
		step = -1
	case key.Matches(msg, m.keys.Down):
		step = 1
	case key.Matches(msg, m.keys.PageUp):
		step = -page
	case key.Matches(msg, m.keys.PageDown):
		step = page
	case key.Matches(msg, m.keys.Home):
		m.touchedAt = m.now
		if p != nil {
			p.home()
		}
		s.scroll = 0
		return true
	case key.Matches(msg, m.keys.End):
		step = 1 << 30
	default:
		return false
	}
	m.touchedAt = m.now
	if p != nil {
		p.move(step)
	} else {
		s.scroll = max(0, min(s.scroll+step, len(m.recordLines())-m.bodyHeight()))
	}
	return true
}

// act handles the other keys.
func (m *model) act(msg tea.KeyMsg) tea.Cmd {
	k := &m.keys
	switch {
	case key.Matches(msg, k.View):
		return m.show(int(msg.String()[0] - '1'))
	case key.Matches(msg, k.Next):
		return m.turn(1)
	case key.Matches(msg, k.Previous):
		return m.turn(-1)
	case key.Matches(msg, k.Open):
		return m.enter()
	case key.Matches(msg, k.Back):
		return m.back()
	case key.Matches(msg, k.Filter):
		m.askFilter()
	case key.Matches(msg, k.Sort):
		return m.sortNext()
	case key.Matches(msg, k.Reverse):
		return m.reverse()
	case key.Matches(msg, k.Pause):
		m.pause()
	case key.Matches(msg, k.Faster):
		return m.pace(-1)
	case key.Matches(msg, k.Slower):
		return m.pace(1)
	case key.Matches(msg, k.Raw):
		m.env.raw = !m.env.raw
	case key.Matches(msg, k.Close):
		m.askClose()
	case key.Matches(msg, k.Help):
		m.help = true
	}
	return nil
}

// sortNext sorts by the next column.
func (m *model) sortNext() tea.Cmd {
	s := m.screen()
	columns := core.SortColumns(s.view)
	if s.record != nil || len(columns) == 0 {
		m.tell(toneFaint, "these rows have an order of their own")
		return nil
	}
	next := (slices.Index(columns, s.order.column) + 1) % len(columns)
	s.order, s.resort = order{column: columns[next]}, true
	return m.askAnew()
}

func (m *model) reverse() tea.Cmd {
	s := m.screen()
	if s.record != nil || len(core.SortColumns(s.view)) == 0 {
		return nil
	}
	s.order.reverse, s.resort = !s.order.reverse, true
	return m.askAnew()
}

// pause freezes what is shown, or goes on with the newest there is.
func (m *model) pause() {
	m.paused = !m.paused
	if !m.paused && m.unseen != nil {
		m.take(m.unseen)
	}
}

// pace goes to the next shorter or longer interval.
func (m *model) pace(step int) tea.Cmd {
	at, _ := slices.BinarySearch(intervals, m.interval)
	if step > 0 && at < len(intervals) && intervals[at] != m.interval {
		step = 0 // the one before it in the list is the next longer one already
	}
	next := intervals[min(max(at+step, 0), len(intervals)-1)]
	if next == m.interval {
		return nil
	}
	m.interval = next
	m.tell(toneFaint, "an update every "+every(next))
	return m.ask()
}

// every is an interval in words.
func every(d time.Duration) string {
	if d < time.Second {
		return span(d)
	}
	return d.String()
}
