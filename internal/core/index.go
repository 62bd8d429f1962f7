package core

import "sync"

// An index finds the values one of whose patterns matches a topic. A lookup costs time that grows with the segments of
// the topic and with what matches, not with the number of values, and each value is found once however many of its
// patterns match. What is removed leaves nothing behind.
//
// The zero value is an empty index. Calls of match may run at the same time; add and remove need the index to themselves.
type index[V comparable] struct {
	values   indexTable[V, *indexEntry[V]]
	literals indexTable[string, *indexBucket[V]] // alternatives without wildcards, by the topic they match
	public   indexNode[V]                        // the others, by segment
	own      indexNode[V]                        // and those of them that are for the broker's own topics
	ids      indexIDs                            // of ** nodes, and of values that several alternatives lead to
	starIDs  indexIDs                            // of the stars in globs
	scratch  sync.Pool                           // of *indexScratch[V]
}

// indexEntry is one value with its patterns.
type indexEntry[V comparable] struct {
	value V
	set   *PatternSet
	id    uint32  // 0: only one alternative leads here
	spots []int32 // by alternative: where in its bucket
}

// add registers v, which must not be in the index, under set.
func (ix *index[V]) add(set *PatternSet, v V) {
	e := &indexEntry[V]{value: v, set: set, spots: make([]int32, len(set.includes))}
	if len(set.includes) > 1 {
		ix.ids.take(&e.id)
	}
	ix.values.put(v, e)
	for i, a := range set.includes {
		if !a.literal() {
			ix.tree(a.own).add(ix, a.segments, e, i)
			continue
		}
		b := ix.literals.get(a.text)
		if b == nil {
			b = &indexBucket[V]{}
			ix.literals.put(a.text, b)
		}
		b.add(e, i)
	}
}

// remove undoes add, given the same set. It does nothing if v is not in the index.
func (ix *index[V]) remove(set *PatternSet, v V) {
	e := ix.values.get(v)
	if e == nil {
		return
	}
	ix.values.remove(v)
	if e.id != 0 {
		ix.ids.release(&e.id)
	}
	for i, a := range set.includes {
		if !a.literal() {
			ix.tree(a.own).remove(ix, a.segments, e, i, nil)
			continue
		}
		b := ix.literals.get(a.text)
		b.remove(e, i)
		if b.empty() {
			ix.literals.remove(a.text)
		}
	}
}

// match appends to dst, in no particular order, every value that has a pattern which matches topic and no exclusion that
// does. It allocates nothing but room in dst, once the pool has warmed up.
func (ix *index[V]) match(topic string, dst []V) []V {
	s, _ := ix.scratch.Get().(*indexScratch[V])
	if s == nil {
		s = &indexScratch[V]{ix: ix}
	}
	dst = s.match(topic, dst)
	ix.scratch.Put(s)
	return dst
}

func (ix *index[V]) tree(own bool) *indexNode[V] {
	if own {
		return &ix.own
	}
	return &ix.public
}
