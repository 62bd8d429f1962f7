package rpc

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestFrameOfManyRuns: a frame whose every message has another topic than the one before is dealt with in parts. Order, positions and refusals are
// those of one frame.
func TestFrameOfManyRuns(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	sub := openPatterns(t, stub, "r.**")
	stream := openPublisher(t, stub)
	const n = 3*maxRuns + 100
	frame := &tinybrokerv1.PublishStreamRequest{MaxWait: durationpb.New(10 * time.Second)}
	bad := map[uint64]bool{}
	for i := range uint64(n) {
		topic := fmt.Sprint("r.", i%2)
		if i%1000 == 999 || i == maxRuns || i == maxRuns+1 { // refused ones, also where the frame is parted
			topic, bad[i] = "no good", true
		}
		frame.Messages = append(frame.Messages, &tinybrokerv1.Message{Topic: topic, Payload: numbered(i, 0)})
	}
	if err := stream.Send(frame); err != nil {
		t.Fatal(err)
	}
	failed := map[uint64]bool{}
	for through := uint64(0); through < n; {
		r := receipt(t, stream)
		if r.GetAcceptedThrough() <= through || r.GetUnrouted() != 0 {
			t.Fatalf("receipt %v after %d", r, through)
		}
		through = r.GetAcceptedThrough()
		for _, f := range r.GetFailures() {
			for i := range f.GetCount() {
				failed[f.GetPosition()-1+i] = true
			}
		}
	}
	for i := range uint64(n) {
		if bad[i] != failed[i] {
			t.Fatalf("message %d: refused %v", i, failed[i])
		}
	}
	next := uint64(0)
	for got := 0; got < n-len(bad); {
		for _, m := range sub.take(t, 1) {
			for bad[next] {
				next++
			}
			if i := numberOf(t, m.GetPayload()); i != next {
				t.Fatalf("message %d came, want %d", i, next)
			}
			next++
			got++
		}
	}
}

// TestRunsTakeLittle: a frame of a million tiny runs takes no more than a small multiple of itself, and not for long.
func TestRunsTakeLittle(t *testing.T) {
	station := newStation(t, nil)
	stream := openPublisher(t, station.stub(t), grpc.ForceCodecV2(newRawCodec()))
	var frame []byte
	for i := range 600_000 {
		frame = appendField(frame, fieldMessages, string(appendField(nil, fieldTopic, string('a'+rune(i%2)))))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	if err := stream.SendMsg(frameOfBytes(frame)); err != nil {
		t.Fatal(err)
	}
	for through := uint64(0); through < 600_000; {
		through = receipt(t, stream).GetAcceptedThrough()
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 20*uint64(len(frame)) {
		t.Errorf("a frame of %d KiB took %d KiB", len(frame)>>10, took>>10)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
}
