package rpc

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// joinAlone returns a broker and the only member of a group that acknowledges nothing.
func joinAlone(t *testing.T) (*core.Broker, *core.Member) {
	t.Helper()
	options := core.DefaultOptions()
	options.Encoding = Encoding{}
	b, err := core.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	m, err := b.Join(core.JoinOptions{Group: "g", Patterns: []string{"t"}, Settings: core.GroupSettings{Ack: core.AckNone}})
	if err != nil {
		t.Fatal(err)
	}
	return b, m
}

func publishPayload(t *testing.T, b *core.Broker, payload []byte) {
	t.Helper()
	m := &core.Message{Topic: "t", Payload: payload}
	data := appendRecordOf(nil, m, messageLen(m))
	batch := &core.Batch{Data: data, Runs: []core.Run{{Topic: []byte("t"), End: len(data), Count: 1}}}
	if err := b.Publish(t.Context(), batch); err != nil || batch.Runs[0].Accepted != 1 {
		t.Fatal(err, batch.Runs[0])
	}
}

// TestPartsOfAFrameAreProgress: a member's large frame tells of every 16 KiB of it that is written, and is the same frame; a small one costs
// nothing more.
func TestPartsOfAFrameAreProgress(t *testing.T) {
	for _, test := range []struct{ n, size, marks int }{
		{1, 100, 0},
		{1, partBytes - 100, 0},
		{1, partBytes, 1},
		{1, 1000 << 10, 62},
		{3, 20 << 10, 3},
		{60, 1000, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, m := joinAlone(t)
			payload := bytes.Repeat([]byte("0123456789"), test.size/10+1)[:test.size]
			for range test.n {
				publishPayload(t, b, payload)
			}
			var d core.Delivery
			if !m.Take(&d, takeBytes) || d.Count != test.n {
				t.Fatalf("%d messages were taken", d.Count)
			}
			bufs := deliveryFrame(&d, &pendingFrames{member: m})
			if got := len(bufs); test.marks == 0 && got != len(d.Pieces)+2 {
				t.Errorf("%v: %d buffers", test, got)
			}
			var reader deliveries
			if err := reader.reset(bufs.Materialize()); err != nil {
				t.Fatal(err)
			}
			var got Delivery
			for range test.n {
				if ok, err := reader.next(&got); !ok || err != nil || !bytes.Equal(got.Payload, payload) {
					t.Errorf("%v: %v, %v, %d bytes", test, ok, err, len(got.Payload))
				}
			}
			written, parts := 0, 1
			for _, buf := range bufs {
				// As quick as this, and the stream goes on.
				if written += buf.Len(); written >= parts*partBytes {
					parts++
					time.Sleep(b.Options().SendTimeout * 3 / 4)
				}
				buf.Free()
			}
			synctest.Wait()
			if reason := m.Ending().Reason; reason != core.EndNone || parts-1 != test.marks {
				t.Errorf("%v: ended as %v, %d parts", test, reason, parts-1)
			}
			time.Sleep(b.Options().SendTimeout)
			synctest.Wait()
			if reason := m.Ending().Reason; reason != core.EndStalled {
				t.Errorf("%v: ended as %v, want stalled", test, reason)
			}
			m.Settle(&d, false)
		})
	}
}

// TestSmallFramesAreProgress: so is one frame after the other where the next one waits until there are few.
func TestSmallFramesAreProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, m := joinAlone(t)
		stream := &sink{}
		s := &sender{sub: m, stream: stream, pending: &pendingFrames{member: m}}
		sent := make(chan error, 1)
		go func() { sent <- s.run() }()
		for range maxPending + 1 {
			publishPayload(t, b, nil)
			synctest.Wait()
		}
		if len(stream.frames) != maxPending {
			t.Fatalf("%d frames are pending", len(stream.frames))
		}
		for _, f := range stream.frames[:maxPending/2] {
			time.Sleep(b.Options().SendTimeout * 3 / 4)
			f.bufs.Free()
		}
		synctest.Wait()
		if reason := m.Ending().Reason; reason != core.EndNone || len(stream.frames) != maxPending+1 {
			t.Errorf("ended as %v, %d frames sent", reason, len(stream.frames))
		}
		m.Close()
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}
