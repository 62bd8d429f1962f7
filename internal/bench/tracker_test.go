package bench

import "testing"

func TestTrackerInOrder(t *testing.T) {
	var tr tracker
	for i, step := range []struct {
		sequence uint64
		fresh    bool
	}{{0, true}, {1, true}, {1, false}, {5, true}, {3, false}, {6, true}, {0, false}} {
		if got := tr.inOrder(step.sequence); got != step.fresh {
			t.Errorf("step %d: %d is new: %v", i, step.sequence, got)
		}
	}
}

func TestTrackerInAnyOrder(t *testing.T) {
	members := make([]tracker, 3)
	for i, step := range []struct {
		member   int
		sequence uint64
		fresh    bool
	}{{0, 1000, true}, {0, 0, true}, {0, 1000, false}, {1, 63, true}, {1, 64, true}, {2, 64, true}, {1, 64, false}} {
		if got := members[step.member].inAnyOrder(step.sequence); got != step.fresh {
			t.Errorf("step %d: %d is new: %v", i, step.sequence, got)
		}
	}
	if n := distinct(members); n != 4 {
		t.Errorf("%d distinct messages, want 4", n)
	}
}

// TestShares: the members of a group lose only what none of them has, and duplicate what two of them have.
func TestShares(t *testing.T) {
	members := make([]*reader, 2)
	for i := range members {
		members[i] = &reader{trackers: make([]tracker, 2)}
	}
	for _, m := range []struct {
		member, publisher int
		sequence          uint64
	}{{0, 0, 0}, {1, 0, 1}, {1, 0, 0}, {0, 1, 0}, {0, 1, 2}} {
		if members[m.member].trackers[m.publisher].inAnyOrder(m.sequence) {
			members[m.member].count++
		}
	}
	var r Result
	r.countShares(members, 6, 2)
	if r.Lost != 2 || r.Duplicated != 1 {
		t.Errorf("%d lost, %d duplicated; want 2 and 1", r.Lost, r.Duplicated)
	}
}

func TestStamp(t *testing.T) {
	for _, want := range []stamp{
		{},
		{publisher: maxPublishers - 1, sequence: 1<<sequenceBits - 1, at: 1<<62 + 1, warmup: true},
		{publisher: 3, sequence: 4, at: 5},
	} {
		payload := make([]byte, MinSize)
		want.put(payload)
		if got, ok := readStamp(payload); !ok || got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if _, ok := readStamp(make([]byte, MinSize-1)); ok {
		t.Error("a short payload has a stamp")
	}
}
