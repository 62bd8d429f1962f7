package tui

const (
	gutter = 3 // columns before a row, for the mark of the cursor
	gap    = 2 // between two columns
)

// fit decides how wide each column is in a window of the given width; 0: it is left out.
func fit(heads []head, width int) []int {
	widths := make([]int, len(heads))
	total := -gap
	for i := range heads {
		widths[i] = heads[i].want
		total += widths[i] + gap
	}
	room := width - gutter
	for total > room {
		last := -1
		for i := range heads {
			if widths[i] > 0 && heads[i].rank > 0 && (last < 0 || heads[i].rank > heads[last].rank) {
				last = i
			}
		}
		if last < 0 {
			break
		}
		if heads[last].rank <= essential {
			// What is left is what the view is about: names give way before another column goes.
			if shrink(heads, widths, total-room) {
				return widths
			}
		}
		total -= widths[last] + gap
		widths[last] = 0
	}
	if total > room {
		shrink(heads, widths, total-room)
		return widths
	}
	spread(heads, widths, room-total)
	return widths
}

// essential is the highest rank of the columns that a view is about.
const essential = 4

// shrink takes n columns of width from those that can become narrower, a bit of each, if there are as many.
func shrink(heads []head, widths []int, n int) bool {
	spare := 0
	for i := range heads {
		if widths[i] > 0 {
			spare += widths[i] - heads[i].least
		}
	}
	if spare < n {
		return false
	}
	for n > 0 {
		widest := -1
		for i := range heads {
			if widths[i] > heads[i].least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		widths[widest]--
		n--
	}
	return true
}

// spread gives n columns of width to those that have a use for them.
func spread(heads []head, widths []int, n int) {
	for n > 0 {
		flex := 0
		for i := range heads {
			if widths[i] > 0 && wants(&heads[i], widths[i]) {
				flex += heads[i].flex
			}
		}
		if flex == 0 {
			return
		}
		given := 0
		for i := range heads {
			if widths[i] == 0 || !wants(&heads[i], widths[i]) || given == n {
				continue
			}
			share := min(max(1, n*heads[i].flex/flex), n-given)
			if heads[i].most > 0 {
				share = min(share, heads[i].most-widths[i])
			}
			widths[i] += share
			given += share
		}
		n -= given
	}
}

func wants(h *head, width int) bool { return h.flex > 0 && (h.most == 0 || width < h.most) }
