package core

import (
	"runtime"
	"testing"
	"time"
)

// What was acknowledged leaves nothing behind, however many messages there were, and what waits for its acknowledgement costs little more than its
// bytes: no goroutine and no timer each.
func TestAMillionAcksLeaveNothing(t *testing.T) {
	const batch, pending, most = 1000, 60_000, 1 << 20
	total := 1_000_000
	if testing.Short() {
		total = 100_000
	}
	b := newBroker(t, func(o *Options) { o.GroupCapacity = 2 * pending })
	deadline := 10 * time.Minute
	m := join(t, b, JoinOptions{MaxInFlight: pending, Settings: GroupSettings{AckDeadline: &deadline}})
	deal := func() {
		publish(t, b, numbered("t", 0, batch)...)
		takeEverything(m)
	}
	all := SequenceRange{1, 1 << 40}
	deal()
	m.Ack(all)
	heap, goroutines := int64(heapInUse()), runtime.NumGoroutine()
	for range total / batch {
		deal()
		m.Ack(all)
	}
	if more := int64(heapInUse()) - heap; more > most {
		t.Errorf("the heap grew by %d bytes", more)
	}
	wantBooks(t, b, uint64(total+batch), 0, 0)
	for range pending / batch {
		deal()
	}
	wantBooks(t, b, uint64(total+batch), 0, pending)
	if each := (int64(heapInUse()) - heap) / pending; each > 1<<10 {
		t.Errorf("each message in flight takes %d bytes", each)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, before that %d", n, goroutines)
	}
	m.Ack(all)
	if more := int64(heapInUse()) - heap; more > most {
		t.Errorf("in the end the heap has grown by %d bytes", more)
	}
	runtime.KeepAlive(b)
}
