package tui

import (
	tea "github.com/charmbracelet/bubbletea"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// turn goes to the next panel of the overview, or the next view.
func (m *model) turn(n int) tea.Cmd {
	s := m.screen()
	if len(s.panels) > 1 {
		s.focus = (s.focus + n + len(s.panels)) % len(s.panels)
		return nil
	}
	return m.show((m.root + n + len(views)) % len(views))
}

// enter opens what is under the cursor.
func (m *model) enter() tea.Cmd {
	s := m.screen()
	if s.record != nil {
		return nil
	}
	row := s.chosen()
	if q, ok := row.(*queue); ok {
		if row = any(q.subscription); q.group != nil {
			row = q.group
		}
	}
	switch row := row.(type) {
	case *core.TopicStats:
		next := newScreen(core.ViewSubscriptions)
		next.topic, next.panels[0].title = row.Topic, "subscriptions to "+m.env.name(row.Topic)
		next.panels[0].empty = "nobody subscribes to this topic"
		return m.open(next)
	case *core.GroupStats:
		next := newScreen(core.ViewMembers)
		next.group, next.panels[0].title = row.Name, "members of "+m.env.name(row.Name)
		return m.open(next)
	case *core.SubscriptionStats:
		if row.Group != "" { // a member's own record says more
			first := &core.MemberStats{
				ID: row.ID, Client: row.Client, Peer: row.Peer, Group: row.Group, Patterns: row.Patterns, State: row.State,
				InFlight: row.InFlight, Delivered: row.Delivered, Created: row.Created, Out: row.Out,
			}
			return m.open(newRecord(core.ViewMembers, row.ID, row.ID, first))
		}
		return m.open(newRecord(core.ViewSubscriptions, row.ID, row.ID, row))
	case *core.MemberStats:
		return m.open(newRecord(core.ViewMembers, row.ID, row.ID, row))
	case *core.EvictionStats:
		return m.open(newRecord(core.ViewEvictions, "", evictionKind.key(row), row))
	}
	return nil
}

// back clears the filter, or else goes back to where the screen was opened from. It never quits.
func (m *model) back() tea.Cmd {
	switch s := m.screen(); {
	case s.filter != "":
		return m.filter("")
	case len(m.opened) > 0:
		m.opened = m.opened[:len(m.opened)-1]
		return m.arrive()
	}
	return nil
}

// subscriptionOf is the id and the client's name of what can be closed.
func subscriptionOf(row any) (id, client string) {
	switch row := row.(type) {
	case *core.SubscriptionStats:
		return row.ID, row.Client
	case *core.MemberStats:
		return row.ID, row.Client
	case *queue:
		if row.group == nil {
			return row.subscription.ID, row.subscription.Client
		}
	}
	return "", ""
}
