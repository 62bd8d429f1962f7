//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestInflatedUnderLoad: frames that are a thousand times as large as what travels, on many streams at once.
func TestInflatedUnderLoad(t *testing.T) {
	needsItsOwnMemory(t)
	const maxMemory, streams, frames = 64 << 20, 60, 6
	b := startBroker(t, "--max-memory", "64MiB")
	stop := memoryProbe(t, b)
	conns := []tinybrokerv1.BrokerServiceClient{b.stub(), b.stub(), b.stub()}
	var load sync.WaitGroup
	for i := range streams {
		load.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			stream, err := conns[i%len(conns)].PublishStream(ctx, grpc.UseCompressor(gzip.Name))
			if err != nil {
				t.Error(err)
				return
			}
			frame := &tinybrokerv1.PublishStreamRequest{Messages: []*tinybrokerv1.Message{{Topic: "a", Payload: make([]byte, 3900<<10)}}}
			for range frames {
				if stream.Send(frame) != nil {
					break
				}
			}
			_ = stream.CloseSend()
			for err == nil {
				_, err = stream.Recv()
			}
		})
	}
	load.Wait()
	took := stop()
	bound := memoryBound(maxMemory, len(conns)+1, streams+2)
	peak := b.peak()
	t.Logf("%d MiB resident at most, the bound is %d MiB; the probe's p99 %s", peak>>20, bound>>20, p99(took))
	residentUnder(t, peak, bound)
}

// TestUnreadUnderLoad: publish streams on which nobody takes the receipts, each filled with all that the broker lets in.
func TestUnreadUnderLoad(t *testing.T) {
	const maxMemory, connections, streams = 64 << 20, 6, 40
	b := startBroker(t, "--max-memory", "64MiB")
	stop := memoryProbe(t, b)
	frame := bytes.Repeat([]byte{0, 0, 0, 0, 0}, 3200) // empty messages, each with a receipt
	var load sync.WaitGroup
	unread := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}
	for range connections {
		load.Go(func() {
			c := b.rawConn(unread)
			for range streams {
				id, err := c.begin(tinybrokerv1.BrokerService_PublishStream_FullMethodName)
				for i := 0; err == nil && i < 62; i++ {
					err = c.WriteData(id, false, frame)
				}
				if err != nil {
					c = b.rawConn(unread) // the broker has closed it
				}
			}
		})
	}
	load.Wait()
	took := stop()
	bound := memoryBound(maxMemory, connections+1, connections*streams)
	peak := b.peak()
	t.Logf("%d MiB resident at most, the bound is %d MiB; the probe's p99 %s", peak>>20, bound>>20, p99(took))
	residentUnder(t, peak, bound)
}

// TestResetsUnderLoad: calls that are opened and reset as fast as they can be written, on many connections.
func TestResetsUnderLoad(t *testing.T) {
	const connections = 20
	flood := 2 * time.Second
	if os.Getenv("TINYBROKER_LONG") != "" {
		flood = time.Minute
	}
	b := startBroker(t, "--max-memory", "64MiB")
	stop := memoryProbe(t, b)
	time.Sleep(200 * time.Millisecond)
	before := b.resident()
	end := time.Now().Add(flood)
	var load sync.WaitGroup
	for i := range connections {
		c := b.rawConn()
		load.Go(func() {
			_ = c.SetWriteDeadline(end) // the broker reads slower than this writes
			for n := 0; time.Now().Before(end); n++ {
				id, err := c.begin(tinybrokerv1.BrokerService_Subscribe_FullMethodName)
				if err == nil && n%2 == 0 {
					// Length-prefixed: open { topic_patterns: "a" }.
					err = c.WriteData(id, false, []byte{0, 0, 0, 0, 5, 0x0a, 3, 0x12, 1, 'a'})
				}
				if err == nil {
					err = c.WriteRSTStream(id, http2.ErrCodeCancel)
				}
				if err != nil && time.Now().Before(end) {
					t.Errorf("connection %d, call %d: %v", i, n, err)
					return
				}
			}
			_ = c.Close()
		})
	}
	load.Wait()
	took := stop()
	peak := b.peak()
	t.Logf("%d MiB more at most; the probe's p99 %s", (peak-before)>>20, p99(took))
	residentUnder(t, peak, before+64<<20)
	eventually(t, "no subscription is left but the probe's", func() bool {
		return bytes.Contains([]byte(b.status()), fmt.Appendf(nil, `"subscriptions":%d,`, 1))
	})
}
