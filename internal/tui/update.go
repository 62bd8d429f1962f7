package tui

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// update changes the state as a message says.
func (m *model) update(msg tea.Msg) tea.Cmd {
	m.now = m.clock()
	cmd := m.handle(msg)
	m.layout()
	return tea.Batch(cmd, m.relate())
}

func (m *model) handle(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(0, msg.Width), max(0, msg.Height)
	case tea.KeyMsg:
		return m.press(msg)
	case awokenMsg:
		return tea.Batch(giveBack(func() {}), m.jobs.command(m.jobs.ctx, m.awaitAwoken))
	case resumedMsg:
		return tea.Batch(tea.WindowSize(), tea.ClearScreen) // the size may have changed meanwhile
	case snapshotMsg:
		return m.hear(msg)
	case watchEndedMsg:
		return m.lose(msg)
	case retryMsg:
		return m.retry(msg)
	case askMsg:
		if msg.version == m.version {
			return m.askAnew()
		}
	case relatedMsg:
		m.learn(msg)
	case closedMsg:
		m.closed(msg)
	case tickMsg:
		if m.notice.text != "" && m.now.After(m.notice.until) {
			m.notice = notice{}
		}
		return m.jobs.after(time.Second, tickMsg{})
	}
	return nil
}

// hear takes a snapshot: it is shown, or waits for the end of a pause.
func (m *model) hear(msg snapshotMsg) tea.Cmd {
	if msg.watch != m.watch.number {
		return nil
	}
	m.welcome(msg.snap)
	if m.paused && !m.thawed {
		m.unseen = msg.snap
	} else {
		m.take(msg.snap)
	}
	return m.jobs.command(m.watch.ctx, m.watch.await)
}

// welcome takes note of a sign of life.
func (m *model) welcome(snap *core.Snapshot) {
	restarted := m.link.runID != "" && m.link.runID != snap.Broker.RunID
	switch {
	case !m.link.lostAt.IsZero():
		text := "reconnected after " + seconds(m.now.Sub(m.link.lostAt))
		if restarted {
			text += "; the broker was restarted"
		}
		m.tell(toneGood, text)
	case restarted:
		m.tell(toneWarning, "another broker answers at this address")
	}
	if restarted {
		m.related = related{busy: m.related.busy}
		for _, s := range m.roots {
			s.resort = true
		}
	}
	m.link = link{runID: snap.Broker.RunID, heardAt: m.now}
}

const (
	// resortPause is the least time between two changes of the order of rows.
	resortPause = 2 * time.Second
	// stillness is how long after a key that moved the cursor rows stay where they are.
	stillness = 2 * time.Second
)

// take shows a snapshot. Rows change places only now and then, and not under a cursor that moves.
func (m *model) take(snap *core.Snapshot) {
	m.thawed, m.unseen = false, nil
	sort := m.now.Sub(m.sortedAt) >= resortPause && m.now.Sub(m.touchedAt) >= stillness
	s := m.screen()
	if sort || s.resort {
		m.sortedAt = m.now
	}
	s.take(snap, sort)
	s.takenAt = m.now
	m.newest = snap
}

// lose takes note that a watch has ended, and plans the next try.
func (m *model) lose(msg watchEndedMsg) tea.Cmd {
	if msg.watch != m.watch.number || m.jobs.ctx.Err() != nil {
		return nil
	}
	if m.link.lostAt.IsZero() {
		m.link.lostAt = m.now
	}
	m.link.err = msg.err
	if m.link.err == nil {
		m.link.err = errors.New("the broker ended the stream")
	}
	if lasted := m.now.Sub(m.link.lostAt); m.options.NoReconnect || m.options.ReconnectTimeout > 0 && lasted >= m.options.ReconnectTimeout {
		m.outcome = &LostError{m.link.err}
		return tea.Quit
	}
	m.link.attempts++
	pause := retryPause(m.link.attempts)
	m.link.retryAt = m.now.Add(pause)
	return m.jobs.after(pause, retryMsg{msg.watch})
}

// retryPause grows from a second to five, and differs from one observer to the next.
func retryPause(attempt int) time.Duration {
	d := min(5*time.Second, time.Duration(attempt)*time.Second)
	return d - rand.N(d/4)
}

func (m *model) retry(msg retryMsg) tea.Cmd {
	if msg.watch != m.watch.number {
		return nil
	}
	m.link.retryAt = time.Time{}
	return m.ask()
}

// closed tells what became of closing a subscription.
func (m *model) closed(msg closedMsg) {
	name := m.env.name(msg.id)
	switch {
	case errors.Is(msg.err, core.ErrNotFound):
		m.tell(toneWarning, name+" has already gone")
	case msg.err != nil:
		m.tell(toneBad, fmt.Sprintf("%s was not closed: %s", name, m.env.name(msg.err.Error())))
	default:
		m.tell(toneGood, "closed "+name)
	}
}
