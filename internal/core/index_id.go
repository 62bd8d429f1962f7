package core

// indexIDs numbers things from 1 without gaps: when one goes, the last takes over its number.
type indexIDs struct {
	owners []*uint32 // where the holder of number i+1 keeps it
}

func (s *indexIDs) take(id *uint32) {
	s.owners = append(s.owners, id)
	*id = uint32(len(s.owners))
}

func (s *indexIDs) release(id *uint32) {
	last := s.owners[len(s.owners)-1]
	s.owners[*id-1] = last
	*last = *id
	*id = 0
	s.owners = cutLast(s.owners)
}

// indexMarks is a set of numbers that is emptied without touching them: a number is in it if it carries the present stamp.
type indexMarks struct {
	stamps  []uint32
	present uint32
}

// begin empties the set and makes room for the numbers of ids.
func (m *indexMarks) begin(ids *indexIDs) {
	size := len(ids.owners) + 1
	m.present++
	if m.present == 0 {
		clear(m.stamps)
		m.present = 1
	}
	if n := len(m.stamps); n < size || n > 1024 && n/tableShrink > size {
		m.stamps = make([]uint32, size+size/4)
	}
}

// set puts id into the set and reports whether it was not there before.
func (m *indexMarks) set(id uint32) bool {
	fresh := m.stamps[id] != m.present
	m.stamps[id] = m.present
	return fresh
}
