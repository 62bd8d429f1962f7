// Worker is a member of a consumer group that handles one message at a time, until it is told to stop:
//
//	go run ./docs/examples/go/worker GROUP PATTERN...
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"codeberg.org/tinybroker/tinybroker/docs/examples/go/client"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: worker GROUP PATTERN...")
		os.Exit(64)
	}
	stop, done := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(stop, os.Args[1], os.Args[2:])
	done()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// handle is yours. An error makes the message come again.
func handle(m *tinybrokerv1.Message, attempt uint32) error {
	text := string(m.GetPayload())
	if strings.HasPrefix(text, "fails-once") && attempt == 1 {
		return errors.New("it failed")
	}
	fmt.Printf("done %s attempt %d\n", text, attempt)
	return nil
}

// run works until stop is done, and then leaves: what it has not started goes to other members, at no cost.
// It does not come back after a lost connection; see ../subscribe for that.
func run(stop context.Context, group string, patterns []string) error {
	conn, err := client.Connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	// Not with stop as its context, which would break the stream off instead of leaving.
	stream, err := tinybrokerv1.NewBrokerServiceClient(conn).Subscribe(context.Background())
	if err != nil {
		return err
	}
	say := &speaker{stream: stream}
	// One message at a time: nobody waits here, and one that takes long is extended.
	say.open(&tinybrokerv1.OpenSubscription{ConsumerGroup: group, TopicPatterns: patterns, MaxInFlight: 1, ClientName: "go-worker"})
	frames := make(chan *tinybrokerv1.SubscribeResponse)
	ended := make(chan error, 1)
	go func() {
		for {
			frame, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			frames <- frame
		}
	}()
	deadline := 30 * time.Second
	stopping := stop.Done()
	for {
		select {
		case frame := <-frames:
			if o := frame.GetOpened(); o != nil {
				deadline = o.GetAckDeadline().AsDuration()
				fmt.Fprintln(os.Stderr, "member", o.GetSubscriptionId())
			}
			for i, m := range frame.GetMessages() {
				if stop.Err() == nil { // else it goes back as it is
					say.settle(frame.GetFirstSequence()+uint64(i), m, frame.GetAttempt(), deadline)
				}
			}
		case <-stopping:
			stopping = nil
			say.leave()
		case err := <-ended:
			if errors.Is(err, io.EOF) && stop.Err() != nil {
				return nil
			}
			return err
		}
	}
}
