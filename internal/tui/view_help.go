package tui

import "github.com/charmbracelet/bubbles/key"

// helpLines are all keys, in one column or two.
func (m *model) helpLines() []string {
	groups := m.keys.helpGroups()
	left := append(m.helpColumn(groups[0]), "")
	left = append(left, m.helpColumn(groups[1])...)
	right := m.helpColumn(groups[2])
	f := m.frame()
	lines := []string{m.rule(f, "keys", true)}
	const column = 44
	if m.width < 2*column-8 {
		lines = append(lines, left...)
		lines = append(append(lines, ""), right...)
		return lines
	}
	for i := range max(len(left), len(right)) {
		line := ""
		if i < len(left) {
			line = left[i]
		}
		if i < len(right) {
			line = m.env.pad(line, column, false) + right[i]
		}
		lines = append(lines, m.env.cut(line, m.width))
	}
	return append(lines, "",
		" The cursor follows its row. Rows change places at most every 2 s, and not",
		" while the cursor moves. Rates are those of the last second.")
}

func (m *model) helpColumn(bindings []key.Binding) []string {
	lines := make([]string, 0, len(bindings))
	for _, b := range bindings {
		lines = append(lines, " "+m.env.pad(b.Help().Key, 10, false)+" "+b.Help().Desc)
	}
	return lines
}
