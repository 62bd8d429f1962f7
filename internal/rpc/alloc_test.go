package rpc

import (
	"fmt"
	"testing"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// TestAllocations: on its way from a publisher to a subscriber, a message costs no allocation and a frame a few. What the
// transport does with the frame is left out.
func TestAllocations(t *testing.T) {
	const (
		messages = 400
		perFrame = 20
	)
	for _, topics := range []int{1, 100} {
		t.Run(fmt.Sprintf("topics=%d", topics), func(t *testing.T) {
			o := core.DefaultOptions()
			o.Encoding = Encoding{}
			broker, err := core.New(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(broker.Close)
			sub, err := broker.Subscribe(core.SubscribeOptions{Patterns: []string{"**"}})
			if err != nil {
				t.Fatal(err)
			}
			names := make([]string, topics)
			for i := range names {
				names[i] = fmt.Sprintf("orders.%d", i)
			}
			var (
				w       window
				m       = core.Message{Payload: make([]byte, 100)}
				scan    frameScan
				runs    []core.Run
				d       core.Delivery
				pending pendingFrames
				reader  deliveries
				got     Delivery
				frame   []byte
			)
			one := func() {
				for i := range messages {
					m.Topic = names[i%topics]
					w.add(&m)
				}
				data := w.next()
				// The server's codec makes its own copy of a frame.
				copied := append(make([]byte, 0, len(data)), data...)
				w.confirm(w.published)
				if err := scan.scan(copied, o.MaxMessageSize); err != nil {
					t.Fatal(err)
				}
				runs = runs[:0]
				for _, r := range scan.runs {
					runs = append(runs, core.Run{Topic: r.topic, Start: r.start, End: r.end, Count: r.count, Keyed: r.keyed, Err: r.err})
				}
				if err := broker.Publish(t.Context(), &core.Batch{Data: copied, Runs: runs}); err != nil {
					t.Fatal(err)
				}
				if !sub.Take(&d, takeBytes) || d.Count != messages {
					t.Fatalf("%d messages were taken", d.Count)
				}
				bufs := deliveryFrame(&d, &pending)
				sub.Settle(&d, true)
				if cap(frame) < bufs.Len() {
					frame = make([]byte, bufs.Len())
				}
				frame = frame[:bufs.Len()]
				bufs.CopyTo(frame)
				bufs.Free()
				if err := reader.reset(frame); err != nil {
					t.Fatal(err)
				}
				for range messages {
					if ok, err := reader.next(&got); !ok || err != nil || len(got.Payload) != 100 {
						t.Fatalf("%v, %v", ok, err)
					}
				}
			}
			// A client keeps the text of one topic at a time: where topics alternate, each costs one.
			allowed := float64(perFrame)
			if topics > 1 {
				allowed += messages
			}
			if n := testing.AllocsPerRun(100, one); n > allowed {
				t.Errorf("%.0f allocations for a frame of %d messages", n, messages)
			} else {
				t.Logf("%.0f allocations for a frame of %d messages", n, messages)
			}
		})
	}
}
