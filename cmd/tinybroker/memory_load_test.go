package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// loadOf is what a process does that throws messages at a broker: publishers, each on a connection of its own, publish so many
// messages of size bytes each, to as many frozen topics in turn. Each waits for pace between its messages.
type loadOf struct {
	publishers, messages, size, topics int
	pace                               time.Duration
}

// loadProgram is the name by which the test binary is such a process. It is none of the processes that look at the broker meanwhile: they would
// wait for each other's goroutines.
const loadProgram = "tinybroker-load"

// throw has a process do l, waits for its end, and returns how many messages were accepted and refused.
func (b *broker) throw(l loadOf) (accepted, refused int64) {
	b.t.Helper()
	numbers := fmt.Sprint(l.publishers, l.messages, l.size, l.topics, int64(l.pace))
	p := start(b.t, []string{b.address, numbers}, called(loadProgram))
	p.ended(0)
	if _, err := fmt.Sscan(p.stdout.String(), &accepted, &refused); err != nil {
		b.t.Fatalf("%q: %v", p.stdout.String(), err)
	}
	return accepted, refused
}

// throwLoad is that process.
func throwLoad() {
	var l loadOf
	_, err := fmt.Sscan(os.Args[2], &l.publishers, &l.messages, &l.size, &l.topics, &l.pace)
	if err == nil {
		err = l.run(os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (l loadOf) run(address string) error {
	var accepted, refused atomic.Int64
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var running sync.WaitGroup
	for i := range l.publishers {
		running.Go(func() {
			conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				cancel(err)
				return
			}
			defer conn.Close()
			stub := tinybrokerv1.NewBrokerServiceClient(conn)
			begun := time.Now().Add(l.pace * time.Duration(i) / time.Duration(l.publishers)) // not all at once
			for n := range l.messages {
				time.Sleep(time.Until(begun.Add(time.Duration(n) * l.pace)))
				_, err := stub.Publish(ctx, &tinybrokerv1.PublishRequest{Topic: fmt.Sprint("frozen.", (i+n)%l.topics), Payload: make([]byte, l.size)})
				switch status.Code(err) {
				case codes.OK:
					accepted.Add(1)
				case codes.ResourceExhausted:
					refused.Add(1)
				default:
					cancel(err)
					return
				}
			}
		})
	}
	running.Wait()
	fmt.Fprintln(os.Stdout, accepted.Load(), refused.Load())
	return context.Cause(ctx)
}
