package core

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// A group that has had a great many messages keeps no room for them once they are done, whatever they were.
func TestGroupsLetGoOfTheirRoom(t *testing.T) {
	const n = 60_000
	never, hour := time.Duration(0), time.Hour
	for _, c := range []struct {
		name string
		key  func(i int) string
		say  func(m *Member, all SequenceRange)
	}{
		{"keys", func(i int) string { return fmt.Sprint("key-", i) }, func(*Member, SequenceRange) {}},
		{"released", func(int) string { return "" }, func(m *Member, all SequenceRange) { m.Nack(Nack{Action: NackRelease}, all) }},
		{"failed", func(int) string { return "" }, func(m *Member, all SequenceRange) { m.Nack(Nack{Delay: &never}, all) }},
		{"extended", func(int) string { return "" }, func(m *Member, all SequenceRange) { m.Extend(hour, all) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBroker(t, func(o *Options) { o.GroupCapacity = n })
			before := heapInUse()
			var members []*Member
			for range 4 {
				members = append(members, join(t, b, JoinOptions{MaxInFlight: maxMaxInFlight}))
			}
			for i := range n {
				publish(t, b, post{topic: "t", payload: "x", key: c.key(i)})
			}
			for _, m := range members {
				takeEverything(m)
			}
			for _, m := range members {
				c.say(m, SequenceRange{1, n})
			}
			for again := true; again; {
				again = false
				for _, m := range members {
					m.Ack(SequenceRange{1, 1 << 40})
					_, ok := take(m)
					again = again || ok
				}
			}
			wantBooks(t, b, n, 0, 0)
			wantMemory(t, b, 0)
			if left := int64(heapInUse() - before); left > 512<<10 {
				t.Errorf("%d KiB are left of a group that is empty", left>>10)
			}
			runtime.KeepAlive(b)
		})
	}
}
