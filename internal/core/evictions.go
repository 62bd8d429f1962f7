package core

// evictionsKept is how many of the last evictions are remembered.
const evictionsKept = 1000

// evictionLog remembers the last evictions, so that a client that could not be told, since its connection was gone before
// it read anything again, learns of it when it comes back under the same id. The zero value is ready for use. Not safe
// for concurrent use.
type evictionLog struct {
	ring []eviction
	next int
	byID map[string]int // the newest one's place in ring
}

type eviction struct {
	id     string
	ending Ending
}

func (l *evictionLog) add(id string, ending Ending) {
	if l.byID == nil {
		l.byID = make(map[string]int)
	}
	if len(l.ring) < evictionsKept {
		l.ring = append(l.ring, eviction{})
	} else if old := l.ring[l.next].id; l.byID[old] == l.next {
		delete(l.byID, old)
	}
	l.ring[l.next] = eviction{id, ending}
	l.byID[id] = l.next
	l.next = (l.next + 1) % evictionsKept
}

// amend corrects the newest eviction of an id, if it is still remembered and has not been told.
func (l *evictionLog) amend(id string, ending Ending) {
	if i, ok := l.byID[id]; ok {
		l.ring[i].ending = ending
	}
}

// tell returns the newest eviction of an id, once.
func (l *evictionLog) tell(id string) *Ending {
	i, ok := l.byID[id]
	if !ok {
		return nil
	}
	delete(l.byID, id)
	ending := l.ring[i].ending
	return &ending
}
