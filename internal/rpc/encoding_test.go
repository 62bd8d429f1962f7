package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

func TestEncodingAgreesWithProtobuf(t *testing.T) {
	for _, test := range []struct {
		name string
		m    core.Message
	}{
		{"nothing", core.Message{}},
		{"topic", core.Message{Topic: "a"}},
		{"empty payload", core.Message{Topic: "a", Payload: []byte{}}},
		{"all", core.Message{
			Topic: "a.b", Payload: []byte("p"), Key: "k", Headers: map[string]string{"a": "1", "": "", "long": strings.Repeat("v", 300)},
			PublishTime: time.Unix(1_800_000_000, 999_999_999),
		}},
		{"long topic", core.Message{Topic: strings.Repeat("t", 200), Payload: bytes.Repeat([]byte("p"), 20_000)}},
		{"long key", core.Message{Topic: "t", Key: strings.Repeat("k", 200)}},
		{"many megabytes", core.Message{Topic: "t", Payload: make([]byte, 3<<20)}},
		{"whole second", core.Message{Topic: "t", PublishTime: time.Unix(5, 0)}},
		{"before 1970", core.Message{Topic: "t", PublishTime: time.Unix(-5, 7)}},
		{"first instant", core.Message{Topic: "t", PublishTime: time.Time{}.Add(1)}},
		{"1970", core.Message{Topic: "t", PublishTime: time.Unix(0, 0)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := []byte("before")
			record := Encoding{}.Append(before, &test.m)[len(before):]
			if want := bytesFieldLen(messageLen(&test.m)); len(record) != want {
				t.Errorf("%d bytes, announced %d", len(record), want)
			}
			var response tinybrokerv1.SubscribeResponse
			if err := proto.Unmarshal(record, &response); err != nil || len(response.GetMessages()) != 1 {
				t.Fatalf("%v: %v", err, &response)
			}
			checkMessage(t, &test.m, response.GetMessages()[0])
			checkDeliveries(t, record, response.GetMessages())
			two := append(bytes.Clone(record), record...)
			if n := (Encoding{}).Len(two); n != len(record) {
				t.Errorf("Len is %d of %d", n, len(record))
			}
			if key := (Encoding{}).Key(record); string(key) != test.m.Key {
				t.Errorf("Key is %q", key)
			}
		})
	}
}

func TestPatienceAgreesWithProtobuf(t *testing.T) {
	for _, d := range []time.Duration{1, time.Second, 1500 * time.Millisecond, time.Hour, math.MaxInt64} {
		var s frameScan
		if err := s.scan(appendPatience(nil, fieldFrameMaxWait, d), 1); err != nil || s.maxWait != d {
			t.Errorf("%v came out as %v, %v", d, s.maxWait, err)
		}
		var request tinybrokerv1.PublishRequest
		if err := proto.Unmarshal(appendPatience(nil, fieldRequestMaxWait, d), &request); err != nil || request.GetMaxWait().AsDuration() != d {
			t.Errorf("%v: protobuf reads %v, %v", d, request.GetMaxWait(), err)
		}
	}
	// The longest google.protobuf.Duration is more than a time.Duration holds.
	longest := protowire.AppendBytes([]byte{fieldFrameMaxWait<<3 | 2}, instant{seconds: maxDurationSeconds}.append(nil))
	var s frameScan
	if err := s.scan(longest, 1); err != nil || s.maxWait != math.MaxInt64 {
		t.Errorf("%v, %v", s.maxWait, err)
	}
}

func TestMessageSizeLimits(t *testing.T) {
	headers := make(map[string]string)
	for i := range 1000 {
		headers[string(rune('a'+i))] = ""
	}
	for _, test := range []struct {
		name  string
		limit int
		m     core.Message
		good  bool
	}{
		{"all counts", 10, core.Message{Topic: "ab", Payload: []byte("cd"), Key: "ef", Headers: map[string]string{"gh": "ij"}}, true},
		{"all counts, one less", 9, core.Message{Topic: "ab", Payload: []byte("cd"), Key: "ef", Headers: map[string]string{"gh": "ij"}}, false},
		{"the time does not", 1, core.Message{Topic: "a", PublishTime: time.Unix(1_800_000_000, 1)}, true},
		{"simple, at the limit", 11, core.Message{Topic: "a", Payload: make([]byte, 10)}, true},
		{"simple, over the limit", 10, core.Message{Topic: "a", Payload: make([]byte, 10)}, false},
		{"simple with a key, at the limit", 12, core.Message{Topic: "a", Payload: make([]byte, 10), Key: "k"}, true},
		{"simple with a key, over the limit", 11, core.Message{Topic: "a", Payload: make([]byte, 10), Key: "k"}, false},
		{"framing of a thousand headers", 3000, core.Message{Topic: "a", Headers: headers}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			record := appendRecord(nil, &test.m)
			frame := append(bytes.Clone(record), record...)
			var s frameScan
			if err := s.scan(frame, test.limit); err != nil || len(s.runs) != 1 || s.runs[0].count != 2 {
				t.Fatalf("%+v, %v", s.runs, err)
			}
			checkSizeVerdict(t, s.runs[0].err, test.good)
			_, _, _, err := publishRecord(appendMessage(make([]byte, requestRoom), &test.m), test.limit)
			checkSizeVerdict(t, err, test.good)
		})
	}
}

func checkSizeVerdict(t *testing.T, err error, good bool) {
	t.Helper()
	if good && err != nil || !good && !errors.Is(err, core.ErrMessageTooLarge) {
		t.Errorf("accepted should be %v, got %v", good, err)
	}
}

func BenchmarkAppendRecord(b *testing.B) {
	stamp := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	for _, c := range []struct {
		name string
		m    core.Message
	}{
		{"16B", core.Message{Topic: "bench.topic", Payload: make([]byte, 16)}},
		{"16B+time", core.Message{Topic: "bench.topic", Payload: make([]byte, 16), PublishTime: stamp}},
		{"128B", core.Message{Topic: "bench.topic", Payload: make([]byte, 128)}},
		{"128B+headers", core.Message{Topic: "bench.topic", Payload: make([]byte, 128), Headers: map[string]string{"a": "b", "c": "d"}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			buf := make([]byte, 0, 1024)
			b.ReportAllocs()
			for b.Loop() {
				buf = appendRecord(buf[:0], &c.m)
			}
		})
	}
}

func BenchmarkRecordLen(b *testing.B) {
	for _, size := range []int{16, 128, 1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			record := appendRecord(nil, &core.Message{Topic: "bench.topic", Payload: make([]byte, size)})
			for b.Loop() {
				if (Encoding{}).Len(record) != len(record) {
					b.Fatal("not the length of the record")
				}
			}
		})
	}
}

// What is longer than wanted is measured and not copied: many at once would be in memory together.
func TestRawFrameIsBounded(t *testing.T) {
	for _, c := range []struct{ most, size, kept int }{{0, 5, 5}, {5, 5, 5}, {4, 5, 0}} {
		f := rawFrame{most: c.most}
		if err := newRawCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(make([]byte, c.size))}, &f); err != nil {
			t.Fatal(err)
		}
		if f.size != c.size || len(f.data) != c.kept {
			t.Errorf("of %d bytes, %d at most, it has %d and says %d", c.size, c.most, len(f.data), f.size)
		}
	}
}
