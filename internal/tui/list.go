package tui

// list is which rows are shown in which order, and where the cursor is. The cursor follows a row by its key, wherever
// updates move it; before it was ever moved, it stays on the first row. The zero value is an empty list.
type list struct {
	keys   []string // of the rows, as shown
	places []int    // where each of them is in the snapshot
	pinned string   // the key of the row that the cursor follows
	follow bool     // whether it follows one
	at     int      // the cursor's place in keys
	offset int      // the first row in the window
	height int      // rows in the window, as last drawn
}

// update takes the rows of a new snapshot. With sort they come in the snapshot's order; otherwise those that were there
// stay where they are, the new ones come last, and those that have gone leave no gap.
func (l *list) update(r rows, sort bool) {
	n := r.len()
	keys, places := make([]string, 0, n), make([]int, 0, n)
	if sort || len(l.keys) == 0 {
		for i := range n {
			keys, places = append(keys, r.key(i)), append(places, i)
		}
	} else {
		place := make(map[string]int, n)
		for i := range n {
			place[r.key(i)] = i
		}
		for _, key := range l.keys {
			if i, ok := place[key]; ok {
				keys, places = append(keys, key), append(places, i)
				delete(place, key)
			}
		}
		for i := range n {
			key := r.key(i)
			if _, isNew := place[key]; isNew {
				keys, places = append(keys, key), append(places, i)
				delete(place, key)
			}
		}
	}
	l.keys, l.places = keys, places
	l.find()
}

// find puts the cursor on its row. When the row has gone, its neighbour takes its place.
func (l *list) find() {
	if !l.follow {
		l.at = 0
	} else if l.at >= len(l.keys) || l.keys[l.at] != l.pinned {
		found := false
		for i, key := range l.keys {
			if key == l.pinned {
				l.at, found = i, true
				break
			}
		}
		l.at = max(0, min(l.at, len(l.keys)-1))
		if !found && len(l.keys) > 0 {
			l.pinned = l.keys[l.at]
		}
	}
	l.scroll()
}

// move moves the cursor by n rows and has it follow the row it comes to.
func (l *list) move(n int) {
	if len(l.keys) == 0 {
		return
	}
	l.at = min(max(l.at+n, 0), len(l.keys)-1)
	l.pinned, l.follow = l.keys[l.at], true
	l.scroll()
}

// home puts the cursor on the first row and lets it stay there, whichever row that is.
func (l *list) home() {
	l.follow, l.pinned, l.at = false, "", 0
	l.scroll()
}

// show sets how many rows the window has.
func (l *list) show(height int) {
	l.height = max(height, 0)
	l.scroll()
}

// scroll keeps the cursor in the window, and the window full.
func (l *list) scroll() {
	if l.at < l.offset {
		l.offset = l.at
	}
	if l.height > 0 && l.at >= l.offset+l.height {
		l.offset = l.at - l.height + 1
	}
	l.offset = max(0, min(l.offset, len(l.keys)-l.height))
}

// place is where the cursor's row is in the snapshot; -1: there is none.
func (l *list) place() int {
	if l.at >= len(l.places) {
		return -1
	}
	return l.places[l.at]
}
