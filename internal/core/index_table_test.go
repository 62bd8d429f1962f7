package core

import (
	"math/rand/v2"
	"testing"
)

func TestIndexTableAgreesWithMap(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	var table indexTable[int, *int]
	want := make(map[int]*int)
	for range 20 {
		target := r.IntN(200)
		if r.IntN(3) == 0 {
			target = 0
		}
		for len(want) != target {
			key := r.IntN(400)
			if _, ok := want[key]; ok && len(want) > target {
				table.remove(key)
				delete(want, key)
			} else if !ok && len(want) < target {
				want[key] = new(int)
				table.put(key, want[key])
			}
			if table.get(key) != want[key] {
				t.Fatalf("key %d is wrong", key)
			}
		}
		for key := range 400 {
			if table.get(key) != want[key] {
				t.Fatalf("key %d is wrong with %d", key, len(want))
			}
		}
		if table.empty() != (len(want) == 0) {
			t.Fatalf("empty with %d", len(want))
		}
	}
}

func TestIndexTableShrinks(t *testing.T) {
	var table indexTable[int, *int]
	for key := range 100_000 {
		table.put(key, new(int))
	}
	for key := 99_999; key >= 0; key-- {
		table.remove(key)
		if key > tableFew && table.peak > tableShrink*key {
			t.Fatalf("with %d left, the map still has room for %d", key, table.peak)
		}
		if key <= tableFew/2 && table.many != nil {
			t.Fatalf("with %d left, there is still a map", key)
		}
	}
	if table.few != nil {
		t.Error("there is still a slice")
	}
}

func TestCutLastForgets(t *testing.T) {
	s := make([]*int, 0, 200)
	for range 200 {
		s = append(s, new(int))
	}
	for n := 199; n >= 0; n-- {
		s = cutLast(s)
		if len(s) != n || cap(s) >= 16 && cap(s) > 4*(n+1) {
			t.Fatalf("%d of %d left, room for %d", len(s), n, cap(s))
		}
		for _, p := range s[n:cap(s)] {
			if p != nil {
				t.Fatalf("with %d left, something behind the end is kept", n)
			}
		}
	}
	if s != nil {
		t.Error("there is still a slice")
	}
}

func TestIndexIDsStayDense(t *testing.T) {
	var ids indexIDs
	var marks indexMarks
	numbers := make([]uint32, 10_000)
	for i := range numbers {
		ids.take(&numbers[i])
	}
	marks.begin(&ids)
	for i, id := range numbers {
		if !marks.set(id) || marks.set(id) {
			t.Fatalf("number %d of %d is not unique", id, i)
		}
	}
	for i := range 9_990 {
		ids.release(&numbers[i])
	}
	marks.begin(&ids)
	if n := len(marks.stamps); n > 1024 {
		t.Errorf("room for %d marks", n)
	}
	for _, id := range numbers[9_990:] {
		if id < 1 || id > 10 || !marks.set(id) {
			t.Errorf("number %d of 10", id)
		}
	}
}

func TestIndexMarksSurviveOverflow(t *testing.T) {
	var ids indexIDs
	var id uint32
	ids.take(&id)
	var marks indexMarks
	marks.begin(&ids)
	marks.set(id)
	marks.present = ^uint32(0) // as after four billion lookups
	marks.begin(&ids)
	if !marks.set(id) {
		t.Error("an old mark is still there")
	}
}
