package tui

import (
	"slices"
	"strings"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// of is the frame for the fields in so many columns: what is left for values.
func (f *frame) of(columns int) *frame {
	narrow := *f
	narrow.width = max(1, columns-gutter-labelWidth)
	return &narrow
}

// lines draw fields below each other; long values go on in the next line.
func (f *frame) lines(fields []field) []string {
	var lines []string
	for _, fd := range fields {
		if fd.value == "" {
			continue
		}
		label := f.styles.draw(toneFaint, pad(fd.label, labelWidth, false, ""))
		parts := []string{fd.value}
		if !fd.picture {
			parts = wrap(fd.value, f.width)
		}
		for _, part := range parts {
			lines = append(lines, strings.Repeat(" ", gutter)+label+f.styles.draw(fd.tone, part))
			label = strings.Repeat(" ", labelWidth)
		}
	}
	return lines
}

const labelWidth = 14

// wrap cuts text into lines of n columns.
func wrap(text string, n int) []string {
	var lines []string
	for width(text) > n {
		first := cut(text, n, "")
		if first == "" { // a character wider than the line
			break
		}
		if i := strings.LastIndex(first, " "); i > 0 && !strings.HasPrefix(text[len(first):], " ") {
			first = first[:i]
		}
		lines = append(lines, first)
		text = strings.TrimLeft(text[len(first):], " ")
	}
	return append(lines, cut(text, n, ""))
}

// recordLines are the screen of a record.
func (m *model) recordLines() []string {
	s, f := m.screen(), m.frame()
	lines := []string{m.rule(f, f.title(s.record), false)}
	if m.bodyHeight() > 10 {
		lines = append(lines, "")
	}
	if s.gone {
		text := "this is how it was last seen: it has gone"
		if _, isEviction := s.record.(*core.EvictionStats); isEviction {
			text = "the broker remembers only the last 1000 evictions; this was one of them"
		}
		lines = append(lines, f.styles.draw(toneWarning, m.env.cut("   "+text, m.width)), "")
	}
	f = f.of(m.width)
	return append(lines, f.lines(f.fields(s.record))...)
}

// paneHeight is how many lines the pane about the row under the cursor has.
func (m *model) paneHeight() int { return min(max(9, m.bodyHeight()*2/5), 20) }

// paneLines are the fields of the row under the cursor, in two columns, and below them what belongs to it.
func (m *model) paneLines(f *frame, s *screen) []string {
	height := m.paneHeight()
	row := s.chosen()
	lines := []string{m.rule(f, f.title(row), false)}
	if row == nil {
		return append(lines, make([]string, height-1)...)
	}
	column := f.of(m.width/2 - 1)
	fields := column.fields(row)
	if m.related.of != "" {
		fields = slices.DeleteFunc(fields, func(fd field) bool { return fd.more })
	}
	half := (len(fields) + 1) / 2
	left, right := column.lines(fields[:half]), column.lines(fields[half:])
	for i := range max(len(left), len(right)) {
		line := ""
		if i < len(left) {
			line = left[i]
		}
		if i < len(right) {
			line = padDrawn(line, m.width/2) + right[i]
		}
		lines = append(lines, line)
	}
	lines = append(lines, m.relatedLines(f, height-len(lines))...)
	for len(lines) < height {
		lines = append(lines, "")
	}
	return lines[:height]
}

// title names a row.
func (f *frame) title(row any) string {
	switch row := row.(type) {
	case *core.TopicStats:
		return "topic " + f.name(row.Topic)
	case *core.SubscriptionStats:
		return "subscription " + f.name(row.ID)
	case *core.GroupStats:
		return "group " + f.name(row.Name)
	case *core.MemberStats:
		return "member " + f.name(row.ID)
	case *core.EvictionStats:
		return "eviction of " + f.name(row.ID)
	}
	return "nothing chosen"
}

// nobody says that nothing is related, to a group or to a topic.
var nobody = map[bool]string{true: "no members", false: "no subscriptions"}

// relatedLines are the subscriptions of a topic or the members of a group.
func (m *model) relatedLines(f *frame, height int) []string {
	r := m.related.rows
	if m.related.of == "" || r == nil || height < 2 {
		return nil
	}
	if r.len() == 0 {
		return []string{f.styles.draw(toneFaint, "   "+nobody[strings.HasPrefix(m.related.of, ofGroup)])}
	}
	heads := r.heads()
	widths := fit(heads, m.width)
	lines := []string{f.headLine(heads, widths, order{})}
	for i := range min(r.len(), height-1) {
		lines = append(lines, f.rowLine(r, i, heads, widths, m.width, false))
	}
	return lines
}
