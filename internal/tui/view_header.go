package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// headerLines are the broker and the state of the connection, its rates, and the views.
func (m *model) headerLines() []string {
	lines := []string{m.brokerLine()}
	if m.headerHeight() > 2 {
		lines = append(lines, m.rateLines()...)
	}
	return append(lines, m.viewsLine())
}

// brokerLine has at its right what is not as usual. The rest gives way to it.
func (m *model) brokerLine() string {
	e := m.env
	status, t := m.status()
	status = e.cut(status, m.width-1)
	room := m.width - width(status)
	parts := []string{" tinybroker"}
	if address := m.options.Address; address != "" {
		parts = append(parts, e.cut(e.name(address), 40))
	}
	if snap := m.newest; snap != nil {
		b := &snap.Broker
		parts = append(parts,
			"up "+span(b.Time.Sub(b.Started)),
			plural(b.Connections, "client"),
			"mem "+mebibytes(b.Memory, e.raw)+"/"+mebibytes(b.MaxMemory, e.raw))
	}
	line := ""
	for i, part := range parts {
		if i > 0 {
			part = "  " + part
		}
		if width(line)+width(part) >= room {
			break
		}
		line += part
	}
	line = e.pad(line, room-1, false)
	return e.styles.draw(toneStrong, line[:min(len(" tinybroker"), len(line))]) + line[min(len(" tinybroker"), len(line)):] + " " + e.styles.draw(t, status)
}

// status says what is not as usual with what is shown.
func (m *model) status() (string, tone) {
	l := &m.link
	quiet := m.now.Sub(l.heardAt)
	switch {
	case !l.lostAt.IsZero():
		next := "trying again"
		if !l.retryAt.IsZero() {
			next = "retry in " + seconds(l.retryAt.Sub(m.now)+time.Second-1)
		}
		return fmt.Sprintf("DISCONNECTED %s, %s (%s)", seconds(m.now.Sub(l.lostAt)), next, m.env.name(l.err.Error())), toneBad
	case l.heardAt.IsZero():
		return "connecting", toneWarning
	case m.paused:
		return "PAUSED " + seconds(m.now.Sub(m.screen().takenAt)), toneWarning
	case quiet > 3*m.interval && quiet > m.interval+answerPatience/4:
		return "NO ANSWER for " + seconds(quiet), toneWarning
	case m.interval != m.options.Interval || m.interval >= 5*time.Second:
		return "every " + every(m.interval), toneFaint
	}
	return "", toneFaint
}

// rateLines are what goes in and out, and what goes wrong.
func (m *model) rateLines() []string {
	snap := m.newest
	if snap == nil {
		return []string{"", ""}
	}
	r, b := &snap.Rates, &snap.Broker
	lost := b.Dropped + b.Lost
	return []string{
		m.rateLine("in", r.In, r.InBytes, r.InHistory, "evict", r.EvictionsMinute, b.Evictions),
		m.rateLine("out", r.Out, r.OutBytes, r.OutHistory, "drop", r.DroppedMinute, lost),
	}
}

func (m *model) rateLine(what string, rates, bytes core.Rates, history []uint32, wrong string, minute, total uint64) string {
	e := m.env
	left := fmt.Sprintf(" %-3s %6s/s %9s/s ", what, rate(rates.Second), size(bytes.Second, e.raw))
	right := fmt.Sprintf(" %5s %5s/1m %5s total", wrong, count(minute), count(total))
	t := toneFaint
	if minute > 0 {
		t = toneBad
	}
	if width(left)+width(right) > m.width {
		return e.cut(left, m.width)
	}
	room := m.width - width(left) - width(right)
	n := min(len(history), history60, room)
	spark := e.sparkline(history, n)
	return left + e.styles.draw(toneGood, spark) + strings.Repeat(" ", room-n) + e.styles.draw(t, right)
}

// history60 is how many seconds a history has.
const history60 = 60

// viewsLine names the views and counts what each would show. The one that is shown stands in brackets.
func (m *model) viewsLine() string {
	var b core.Stats
	if snap := m.newest; snap != nil {
		b = snap.Broker
	}
	names := [...]string{
		"Overview", "Topics " + count(b.Topics), "Subs " + count(b.Subscriptions), "Groups " + count(b.Groups), "Evict " + count(b.Evictions),
	}
	tabs := make([]string, len(names))
	total := 0
	for i, name := range names {
		tabs[i] = strconv.Itoa(i+1) + " " + name
		total += width(tabs[i]) + 2
	}
	if total > m.width { // the numbers alone, but for the one that is shown
		for i := range tabs {
			if i != m.root {
				tabs[i] = strconv.Itoa(i + 1)
			}
		}
	}
	for i, tab := range tabs {
		if i == m.root {
			tabs[i] = m.env.styles.draw(toneStrong, "["+tab+"]")
		} else {
			tabs[i] = " " + tab + " "
		}
	}
	return strings.Join(tabs, "")
}
