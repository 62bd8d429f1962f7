package core

// evictionsKept is how many of the last evictions are remembered.
const evictionsKept = 1000

// evictionLog remembers the last evictions, so that a client that could not be told, since its connection was gone before
// it read anything again, learns of it when it comes back under the same id. The zero value is ready for use. Not safe
// for concurrent use.
type evictionLog struct {
	ring []eviction
	next int
	byID map[string]int // the newest one's place in ring, until it is told
}

type eviction struct {
	who      EvictionStats // but for what the ending says
	identity string        // whose subscription it was
	ending   Ending
}

func (l *evictionLog) add(who EvictionStats, identity string, ending Ending) {
	if l.byID == nil {
		l.byID = make(map[string]int)
	}
	if len(l.ring) < evictionsKept {
		l.ring = append(l.ring, eviction{})
	} else if old := l.ring[l.next].who.ID; l.byID[old] == l.next {
		delete(l.byID, old)
	}
	l.ring[l.next] = eviction{who, identity, ending}
	l.byID[who.ID] = l.next
	l.next = (l.next + 1) % evictionsKept
}

// amend corrects the newest eviction of an id, if it is still remembered and has not been told.
func (l *evictionLog) amend(id string, ending Ending) {
	if i, ok := l.byID[id]; ok {
		l.ring[i].ending = ending
	}
}

// tell returns the newest eviction of an id, once, and to the identity alone that it has happened to.
func (l *evictionLog) tell(id, identity string) *Ending {
	i, ok := l.byID[id]
	if !ok || l.ring[i].identity != identity {
		return nil
	}
	delete(l.byID, id)
	ending := l.ring[i].ending
	return &ending
}

// all returns the evictions that are remembered.
func (l *evictionLog) all() []EvictionStats {
	all := make([]EvictionStats, len(l.ring))
	for i := range l.ring {
		e := l.ring[i].who
		ending := l.ring[i].ending
		e.Reason, e.Text, e.Lost, e.Lived = ending.Reason.String(), ending.Text, ending.Lost, ending.Lived
		e.Queued, e.QueuedBytes = ending.Queued, ending.QueuedBytes
		all[i] = e
	}
	return all
}
