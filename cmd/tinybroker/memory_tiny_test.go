//go:build linux

package main

import (
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestTinyUnderLoad: messages of a byte, for groups whose members take none and for subscriptions that are frozen. What is kept beside the bytes is within the
// bound, too.
func TestTinyUnderLoad(t *testing.T) {
	const maxMemory, groups, frozen = 32 << 20, 40, 60
	b := startBroker(t, "--max-memory", "32MiB", "--group-capacity", "100000")
	stub := b.stub(grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	open := func(o *tinybrokerv1.OpenSubscription) {
		stream, err := stub.Subscribe(t.Context())
		if err == nil {
			err = stream.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{Open: o}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range groups {
		open(&tinybrokerv1.OpenSubscription{TopicPatterns: []string{"tiny.**"}, ConsumerGroup: fmt.Sprint("g", i), MaxInFlight: 1, Overflow: tinybrokerv1.OverflowPolicy_OVERFLOW_POLICY_DROP_OLDEST})
	}
	for range frozen {
		open(&tinybrokerv1.OpenSubscription{TopicPatterns: []string{"tiny.**"}})
	}
	refused := 0
	var mu sync.Mutex
	var load sync.WaitGroup
	for p := range 4 {
		publisher, err := b.stub().PublishStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		load.Go(func() {
			for i := range 300 {
				frame := &tinybrokerv1.PublishStreamRequest{}
				for j := range 100 {
					frame.Messages = append(frame.Messages, &tinybrokerv1.Message{Topic: "tiny.t", Key: fmt.Sprint(p, "-", i, "-", j), Payload: []byte{1}})
				}
				err := publisher.Send(frame)
				r, recvErr := publisher.Recv()
				if err != nil || recvErr != nil {
					t.Errorf("%v, %v", err, recvErr)
					return
				}
				for _, f := range r.GetFailures() {
					if codes.Code(f.GetCode()) != codes.ResourceExhausted {
						t.Error(f)
					}
					mu.Lock()
					refused += int(f.GetCount())
					mu.Unlock()
				}
			}
		})
	}
	load.Wait()
	bound := memoryBound(maxMemory, 6, groups+frozen+4) + groups*256<<10
	peak := b.peak()
	t.Logf("%d MiB resident at most, the bound is %d MiB; %d bytes held; %d messages refused", peak>>20, bound>>20, b.memory(), refused)
	residentUnder(t, peak, bound)
	if refused == 0 {
		t.Error("memory was never full")
	}
}
