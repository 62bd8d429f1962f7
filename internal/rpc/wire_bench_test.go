package rpc

import (
	"fmt"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// frameOf encodes about 64 KiB of messages as message gives them.
func frameOf(message func(i int) *core.Message) (frame []byte, count int) {
	for len(frame) < 64<<10 {
		frame = appendRecord(frame, message(count))
		count++
	}
	return frame, count
}

func BenchmarkScan(b *testing.B) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	for _, size := range []int{16, 128, 1024} {
		payload := make([]byte, size)
		for _, c := range []struct {
			name    string
			message func(i int) *core.Message
		}{
			{"plain", func(int) *core.Message { return &core.Message{Topic: "bench.topic", Payload: payload} }},
			{"sizes", func(i int) *core.Message { return &core.Message{Topic: "bench.topic", Payload: payload[:size-i%8]} }},
			{"time", func(int) *core.Message {
				return &core.Message{Topic: "bench.topic", Payload: payload, PublishTime: now}
			}},
			{"key", func(int) *core.Message {
				return &core.Message{Topic: "bench.topic", Payload: payload, Key: "customer-17", PublishTime: now}
			}},
			{"headers", func(int) *core.Message {
				return &core.Message{Topic: "bench.topic", Payload: payload, Headers: map[string]string{"trace": "0123456789abcdef"}}
			}},
			{"topics", func(i int) *core.Message {
				return &core.Message{Topic: fmt.Sprintf("bench.topic.%d", i%10000), Payload: payload}
			}},
		} {
			b.Run(fmt.Sprintf("%s/%dB", c.name, size), func(b *testing.B) {
				frame, count := frameOf(c.message)
				var s frameScan
				b.ReportAllocs()
				b.SetBytes(int64(len(frame)))
				for b.Loop() {
					if err := s.scan(frame, 1<<20); err != nil || s.count != count {
						b.Fatal(err, s.count, count)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/msg")
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	stamp := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	for _, size := range []int{16, 128} {
		payload := make([]byte, size)
		for _, c := range []struct {
			name    string
			message func(i int) *core.Message
		}{
			{"plain", func(int) *core.Message { return &core.Message{Topic: "bench.topic", Payload: payload} }},
			{"sizes", func(i int) *core.Message { return &core.Message{Topic: "bench.topic", Payload: payload[:size-i%8]} }},
			{"time", func(int) *core.Message {
				return &core.Message{Topic: "bench.topic", Payload: payload, PublishTime: stamp}
			}},
			{"headers", func(int) *core.Message {
				return &core.Message{Topic: "bench.topic", Payload: payload, Headers: map[string]string{"trace": "0123456789abcdef"}}
			}},
			{"topics", func(i int) *core.Message {
				return &core.Message{Topic: fmt.Sprintf("bench.topic.%d", i%10000), Payload: payload}
			}},
		} {
			b.Run(fmt.Sprintf("%s/%dB", c.name, size), func(b *testing.B) {
				frame, count := frameOf(c.message)
				var d deliveries
				var out Delivery
				b.ReportAllocs()
				for b.Loop() {
					if err := d.reset(frame); err != nil {
						b.Fatal(err)
					}
					for {
						if ok, err := d.next(&out); err != nil {
							b.Fatal(err)
						} else if !ok {
							break
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(count), "ns/msg")
			})
		}
	}
}
