package tui

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// views are the screens that the keys 1 to 5 lead to.
var views = [...]core.View{core.ViewOverview, core.ViewTopics, core.ViewSubscriptions, core.ViewGroups, core.ViewEvictions}

// screen is one thing to look at: a view, what was opened from a row, or a single record. It keeps its cursor, order and filter
// while others are shown.
type screen struct {
	view             core.View
	topic, group, id string // what it is narrowed down to; see core.Query
	order            order
	filter           string
	// record is the row that a screen of a single record shows, as last seen; nil: a list. key is the row's.
	record any
	key    string
	gone   bool // the row was missing in the last snapshot
	scroll int  // lines of the record above the window

	snap    *core.Snapshot // nil: none has come yet
	takenAt time.Time      // when it was shown first
	panels  []panel        // one, or the overview's three
	focus   int            // the panel with the cursor
	resort  bool           // the next snapshot is to be shown in its own order
}

// panel is a table with a cursor.
type panel struct {
	list
	title string
	rows  rows
	empty string // said when there is no row
}

func newScreen(v core.View) *screen {
	s := &screen{view: v, resort: true}
	switch v {
	case core.ViewOverview:
		s.panels = []panel{
			{title: "busiest topics", rows: table[core.TopicStats]{kind: &topicKind}, empty: noTopics},
			{title: "fullest queues", rows: table[queue]{kind: &queueKind}, empty: noSubscriptions},
			{title: "last evictions", rows: table[core.EvictionStats]{kind: &evictionKind}, empty: noEvictions},
		}
	case core.ViewTopics:
		s.panels = []panel{{title: "topics", rows: table[core.TopicStats]{kind: &topicKind}, empty: noTopics}}
	case core.ViewSubscriptions:
		s.panels = []panel{{title: "subscriptions", rows: table[core.SubscriptionStats]{kind: &subscriptionKind}, empty: noSubscriptions}}
	case core.ViewGroups:
		s.panels = []panel{{title: "groups", rows: table[core.GroupStats]{kind: &groupKind}, empty: "no consumer groups"}}
	case core.ViewMembers:
		s.panels = []panel{{title: "members", rows: table[core.MemberStats]{kind: &memberKind}, empty: "no members"}}
	case core.ViewEvictions:
		s.panels = []panel{{title: "evictions", rows: table[core.EvictionStats]{kind: &evictionKind}, empty: noEvictions}}
	}
	if columns := core.SortColumns(v); len(columns) > 0 {
		s.order.column = columns[0]
	}
	return s
}

const (
	noTopics        = "no topics: nothing was published lately"
	noSubscriptions = "no subscriptions"
	noEvictions     = "no evictions: nobody was too slow"
)

// newRecord is the screen of one row.
func newRecord(v core.View, id, key string, row any) *screen {
	return &screen{view: v, id: id, key: key, record: row}
}

// query is what the screen asks the broker for.
func (s *screen) query(limit int) core.Query {
	q := core.Query{View: s.view, Limit: limit, Topic: s.topic, Group: s.group, ID: s.id}
	if e, isEviction := s.record.(*core.EvictionStats); isEviction {
		q.Filter = e.ID // evictions are not found by id
	}
	if s.record == nil {
		q.Sort, q.Reverse, q.Filter = s.order.column, s.order.reverse, s.filter
	}
	if s.view == core.ViewOverview {
		q.Limit = min(limit, overviewRows)
	}
	return q
}

// overviewRows is more than the tallest window shows of a panel: the broker need not send what nobody sees.
const overviewRows = 100

// panel is the one with the cursor; nil on the screen of a record.
func (s *screen) panel() *panel {
	if s.focus >= len(s.panels) {
		return nil
	}
	return &s.panels[s.focus]
}

// chosen is the row under the cursor, or the record; nil: there is none.
func (s *screen) chosen() any {
	if s.record != nil {
		return s.record
	}
	p := s.panel()
	if p == nil || p.place() < 0 {
		return nil
	}
	return p.rows.at(p.place())
}

// take shows a snapshot. With sort its order is shown, otherwise rows stay where they are.
func (s *screen) take(snap *core.Snapshot, sort bool) {
	s.snap = snap
	if s.record != nil {
		s.takeRecord(snap)
		return
	}
	sort = sort || s.resort
	s.resort = false
	for i, r := range s.tables(snap) {
		s.panels[i].rows = r
		s.panels[i].update(r, sort)
	}
}

// tables are the rows of each panel.
func (s *screen) tables(snap *core.Snapshot) []rows {
	switch s.view {
	case core.ViewOverview:
		return []rows{
			table[core.TopicStats]{&topicKind, snap.Topics},
			table[queue]{&queueKind, fullest(snap)},
			table[core.EvictionStats]{&evictionKind, snap.Evictions},
		}
	case core.ViewTopics:
		return []rows{table[core.TopicStats]{&topicKind, snap.Topics}}
	case core.ViewSubscriptions:
		return []rows{table[core.SubscriptionStats]{&subscriptionKind, snap.Subscriptions}}
	case core.ViewGroups:
		return []rows{table[core.GroupStats]{&groupKind, snap.Groups}}
	case core.ViewMembers:
		return []rows{table[core.MemberStats]{&memberKind, snap.Members}}
	case core.ViewEvictions:
		return []rows{table[core.EvictionStats]{&evictionKind, snap.Evictions}}
	}
	return nil
}

// takeRecord finds the record in a snapshot again. One that is not there any more stays as it was last seen.
func (s *screen) takeRecord(snap *core.Snapshot) {
	for _, r := range s.tables(snap) {
		for i := range r.len() {
			if r.key(i) == s.key {
				s.record, s.gone = r.at(i), false
				return
			}
		}
	}
	s.gone = true
}

// fullest joins the queues of subscriptions and groups, the fullest first.
func fullest(snap *core.Snapshot) []queue {
	all := make([]queue, 0, len(snap.Subscriptions)+len(snap.Groups))
	for i := range snap.Subscriptions {
		if snap.Subscriptions[i].Group == "" { // members share their group's
			all = append(all, queue{subscription: &snap.Subscriptions[i]})
		}
	}
	for i := range snap.Groups {
		all = append(all, queue{group: &snap.Groups[i]})
	}
	slices.SortStableFunc(all, func(a, b queue) int {
		if c := cmp.Compare(fraction(b.load()), fraction(a.load())); c != 0 {
			return c
		}
		return strings.Compare(queueKind.key(&a), queueKind.key(&b))
	})
	return all
}

// counts tells how many rows the list has, and how many there would be without the limit. The overview does not say.
func (s *screen) counts() (shown, all int) {
	if s.snap == nil || s.record != nil || len(s.panels) != 1 {
		return 0, 0
	}
	r := s.snap.Rows
	all = map[core.View]int{
		core.ViewTopics: r.Topics, core.ViewSubscriptions: r.Subscriptions, core.ViewGroups: r.Groups,
		core.ViewMembers: r.Members, core.ViewEvictions: r.Evictions,
	}[s.view]
	return s.panels[0].rows.len(), all
}
