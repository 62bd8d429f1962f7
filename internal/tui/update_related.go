package tui

import (
	"context"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// What begins a row's identity.
const (
	ofTopic = "topic "
	ofGroup = "group "
)

// relatedRows is how many rows that belong to another are asked for.
const relatedRows = 20

// relatedQuery asks for what belongs to a row: the subscriptions of a topic, the members of a group.
func relatedQuery(row any) (of string, q core.Query) {
	switch row := row.(type) {
	case *core.TopicStats:
		return ofTopic + row.Topic, core.Query{View: core.ViewSubscriptions, Topic: row.Topic, Limit: relatedRows}
	case *core.GroupStats:
		return ofGroup + row.Name, core.Query{View: core.ViewMembers, Group: row.Name, Limit: relatedRows}
	}
	return "", core.Query{}
}

// relate asks for what belongs to the row under the cursor, when there is a pane to show it and it is not known as of the
// shown snapshot. One question at a time; the next one follows the answer.
func (m *model) relate() tea.Cmd {
	of, q := "", core.Query{}
	if m.hasPane() {
		of, q = relatedQuery(m.screen().chosen())
	}
	if of != m.related.of {
		m.related = related{of: of, busy: m.related.busy}
	}
	snap := m.screen().snap
	if of == "" || m.related.busy || m.related.snap == snap || !m.link.lostAt.IsZero() {
		return nil
	}
	m.related.snap, m.related.busy = snap, true
	source := m.source
	return m.jobs.command(m.jobs.ctx, func(ctx context.Context) tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, callPatience)
		defer cancel()
		answer, err := source.Observe(ctx, q)
		return relatedMsg{of, answer, err}
	})
}

// learn takes the answer, unless the cursor has moved on.
func (m *model) learn(msg relatedMsg) {
	m.related.busy = false
	if msg.err != nil || msg.of != m.related.of {
		return
	}
	if strings.HasPrefix(msg.of, ofGroup) {
		m.related.rows = table[core.MemberStats]{&memberKind, msg.snap.Members}
		return
	}
	m.related.rows = table[core.SubscriptionStats]{&subscriptionKind, msg.snap.Subscriptions}
}
