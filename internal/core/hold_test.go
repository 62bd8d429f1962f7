package core

import "testing"

// TestHold: bytes that are still being written out count after their delivery was settled, until they are released.
func TestHold(t *testing.T) {
	b := newBroker(t, nil)
	s := subscribe(t, b, SubscribeOptions{Patterns: []string{"**"}})
	var d Delivery
	var h Hold
	for range 3 { // both are used again
		publish(t, b, numbered("a", 0, 5)...)
		held := b.Stats().Memory
		if held == 0 || !s.Take(&d, 1<<20) {
			t.Fatalf("%d bytes held", held)
		}
		d.Hold(&h)
		if got := records(&d); len(got) != 5 {
			t.Errorf("%d records in a delivery that is held", len(got))
		}
		s.Settle(&d, true)
		wantMemory(t, b, held)
		h.Release()
		wantMemory(t, b, 0)
		h.Release()
		wantMemory(t, b, 0)
	}
	if n := b.Stats().Delivered; n != 15 {
		t.Errorf("%d messages delivered", n)
	}
}
