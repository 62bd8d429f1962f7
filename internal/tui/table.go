package tui

import (
	"strings"
	"time"
)

// head describes a column.
type head struct {
	title string
	sort  string // the name that core.Query.Sort has for it; empty: it cannot be sorted by
	// Columns go by rank when there is no room for all, the highest first. Those of rank 0 never go.
	rank int
	// want is how wide the column is to be before others may come in; least is how narrow it may become.
	want, least int
	flex        int  // its part of spare room; 0: none
	most        int  // the widest it gets; 0: no bound
	right       bool // numbers stand at the right
	ascending   bool // sorts from the smallest, as names do
	picture     bool // only for screens: bars and sparklines
}

// cell is what one row has in one column.
type cell struct {
	text string
	tone tone
}

// frame is what cells need to know beside their row: the time of the snapshot, and the width they have.
type frame struct {
	*env
	now   time.Time
	zone  *time.Location
	width int
}

// label is a name for a cell: as much of it as the cell may show, and a bit more where that is not all of it.
func (f *frame) label(name string) string {
	// A character takes four bytes and may carry marks of four bytes each; everything else becomes wider than it was.
	if most := 4 * (1 + maxMarks) * (f.width + 1); f.width > 0 && len(name) > most {
		name = name[:most]
	}
	return f.name(name)
}

// labels are several names in one cell.
func (f *frame) labels(names []string) string {
	var text strings.Builder
	for i, name := range names {
		if i > 0 {
			text.WriteByte(' ')
		}
		text.WriteString(f.label(name))
		if f.width > 0 && width(text.String()) > f.width {
			break
		}
	}
	return text.String()
}

// column is a column of rows of one type.
type column[T any] struct {
	head
	draw func(*T, *frame) cell
}

// rows are the rows of one kind that a list shows.
type rows interface {
	len() int
	key(i int) string
	at(i int) any // a pointer to the row
	heads() []head
	cell(i, column int, f *frame) cell
}

// kind is what there is to know about rows of one type.
type kind[T any] struct {
	columns []column[T]
	key     func(*T) string
}

// table joins rows with what is known about them.
type table[T any] struct {
	kind *kind[T]
	rows []T
}

func (t table[T]) len() int         { return len(t.rows) }
func (t table[T]) key(i int) string { return t.kind.key(&t.rows[i]) }
func (t table[T]) at(i int) any     { return &t.rows[i] }

func (t table[T]) cell(i, column int, f *frame) cell {
	return t.kind.columns[column].draw(&t.rows[i], f)
}

func (t table[T]) heads() []head {
	heads := make([]head, len(t.kind.columns))
	for i := range heads {
		heads[i] = t.kind.columns[i].head
	}
	return heads
}

// order is by what rows are sorted.
type order struct {
	column  string // as core.Query.Sort
	reverse bool
}

// headLine draws the titles of the columns, and a mark at the one that the rows are sorted by.
func (e *env) headLine(heads []head, widths []int, by order) string {
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", gutter))
	first := true
	for i := range heads {
		h := &heads[i]
		if widths[i] == 0 {
			continue
		}
		if !first {
			b.WriteString(strings.Repeat(" ", gap))
		}
		first = false
		title := h.title
		if h.sort != "" && h.sort == by.column {
			mark := e.fall
			if h.ascending != by.reverse {
				mark = e.rising
			}
			title = e.cut(title, widths[i]-1) + mark
		}
		b.WriteString(e.pad(title, widths[i], h.right))
	}
	return e.styles.draw(toneFaint, b.String())
}

// rowLine draws row i in a line of the given width. The row of the cursor has a mark and, with colours, is reversed.
func (f *frame) rowLine(r rows, i int, heads []head, widths []int, width int, chosen bool) string {
	var b strings.Builder
	b.WriteString(f.gutter(chosen))
	first := true
	for c := range heads {
		if widths[c] == 0 {
			continue
		}
		if !first {
			b.WriteString(strings.Repeat(" ", gap))
		}
		first = false
		f.width = widths[c]
		cell := r.cell(i, c, f)
		text := f.pad(cell.text, widths[c], heads[c].right)
		if !chosen {
			text = f.styles.draw(cell.tone, text)
		}
		b.WriteString(text)
	}
	if chosen {
		return f.styles.draw(toneChosen, f.pad(b.String(), width, false))
	}
	return b.String()
}

func (f *frame) gutter(chosen bool) string {
	if chosen {
		return " > "
	}
	return strings.Repeat(" ", gutter)
}
