//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
)

// TestBombsOfStrangers: whoever needs no credential sends, on many streams at once, what is a thousand times as large once it is inflated.
func TestBombsOfStrangers(t *testing.T) {
	const maxMemory, connections, streams = 64 << 20, 3, 300
	b := startBroker(t, "--max-memory", "64MiB")
	stop := memoryProbe(t, b)
	bomb := gzipFrame(t, 15<<20)
	var load sync.WaitGroup
	for range connections {
		c := b.rawConn()
		load.Go(func() {
			var ids []uint32
			for range streams {
				id, err := c.begin(healthgrpc.Health_Check_FullMethodName, [2]string{"grpc-encoding", "gzip"})
				if err != nil {
					return
				}
				ids = append(ids, id)
			}
			for _, id := range ids {
				if c.WriteData(id, false, bomb) != nil {
					return
				}
			}
		})
	}
	load.Wait()
	time.Sleep(5 * time.Second)
	took := stop()
	bound := memoryBound(maxMemory, connections+1, connections*streams)
	peak := b.peak()
	t.Logf("%d MiB resident at most, the bound is %d MiB; the probe's p99 %s", peak>>20, bound>>20, p99(took))
	residentUnder(t, peak, bound)
}

// gzipFrame is a gRPC message of n zeroes, compressed.
func gzipFrame(t *testing.T, n int) []byte {
	t.Helper()
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	if _, err := z.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{1}, uint32(body.Len())), body.Bytes()...)
}
