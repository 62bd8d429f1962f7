package tui

import (
	"fmt"
	"strings"
	"testing"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// At every width the columns fill the line but for what none of them wants, those that go are the ones of the highest ranks, and
// a wider window never shows fewer.
func TestFit(t *testing.T) {
	for _, v := range append(views[:], core.ViewMembers) {
		for i, p := range newScreen(v).panels {
			heads := p.rows.heads()
			before := 0
			for w := minWidth; w <= 300; w++ {
				where := fmt.Sprintf("view %d, panel %d, width %d", v, i, w)
				widths := fit(heads, w)
				total, shown, lowestGone, highestShown := gutter-gap, 0, 100, 0
				for c, n := range widths {
					if n == 0 {
						lowestGone = min(lowestGone, heads[c].rank)
						continue
					}
					shown++
					total += n + gap
					highestShown = max(highestShown, heads[c].rank)
					if n < heads[c].least || heads[c].most > 0 && n > heads[c].most {
						t.Errorf("%s: %s is %d wide", where, heads[c].title, n)
					}
				}
				if total > w {
					t.Errorf("%s: %d columns taken", where, total)
				}
				if highestShown > lowestGone {
					t.Errorf("%s: rank %d is shown, %d is not", where, highestShown, lowestGone)
				}
				if shown < before {
					t.Errorf("%s: %d columns, %d in a narrower window", where, shown, before)
				}
				before = shown
			}
		}
	}
}

// What stays at 80 columns.
func TestColumnsAt80(t *testing.T) {
	for v, want := range map[core.View][]string{
		core.ViewTopics:        {"TOPIC", "IN/s", "OUT/s", "SUBS"},
		core.ViewSubscriptions: {"SUBSCRIPTION", "CLIENT", "PATTERNS", "STATE", "QUEUE", "FULL"},
		core.ViewGroups:        {"GROUP", "MEMBERS", "PENDING", "IN-FLIGHT"},
		core.ViewMembers:       {"CLIENT", "IN-FLIGHT", "SHARE", "LAST ACK"},
		core.ViewEvictions:     {"TIME", "SUBSCRIPTION", "CLIENT", "PATTERNS", "REASON", "LOST"},
	} {
		heads := newScreen(v).panels[0].rows.heads()
		shown := map[string]bool{}
		for i, n := range fit(heads, 80) {
			shown[heads[i].title] = n > 0
		}
		for _, title := range want {
			if !shown[title] {
				t.Errorf("view %d: no %s", v, title)
			}
		}
	}
}

// Whatever rows are sorted by can be seen, in every width: otherwise the key that sorts does nothing that shows.
func TestSortedColumnStays(t *testing.T) {
	for _, v := range append(views[1:], core.ViewMembers) {
		for _, column := range core.SortColumns(v) {
			for _, w := range []int{minWidth, 60, 80, 100, 200} {
				s := newStage(t, Options{}, w, 24)
				s.opened = []*screen{newScreen(v)}
				s.screen().order.column = column
				s.gets(sample())
				if view := s.View(); !strings.ContainsAny(view, "▲▼") {
					t.Errorf("view %d sorted by %s does not show it in %d columns:\n%s", v, column, w, view)
				}
				for _, line := range s.lines() {
					if width(line) > w {
						t.Errorf("view %d sorted by %s is wider than %d: %q", v, column, w, line)
					}
				}
			}
		}
	}
}
