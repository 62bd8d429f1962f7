// Subscribe prints every message that matches, and subscribes again when it was evicted or the broker was away:
//
//	go run ./docs/examples/go/subscribe PATTERN...
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/docs/examples/go/client"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: subscribe PATTERN...")
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stopped := ctx.Err() != nil
	stop()
	if err != nil && !stopped {
		fmt.Fprintln(os.Stderr, "subscribe:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, patterns []string) error {
	conn, err := client.Connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	broker := tinybrokerv1.NewBrokerServiceClient(conn)
	open := &tinybrokerv1.OpenSubscription{TopicPatterns: patterns, ClientName: "go-subscriber"}
	for attempt := 0; ; attempt++ {
		opened, again, err := subscribe(ctx, broker, open)
		fmt.Fprintln(os.Stderr, err)
		if !again {
			return err
		}
		if opened {
			attempt = 0
		}
		// About 100 ms, then twice as long each time up to 5 s, and never all clients at once.
		most := min(100*time.Millisecond<<min(attempt, 10), 5*time.Second)
		select {
		case <-time.After(most/2 + rand.N(most/2)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// subscribe reads one subscription to its end. It tells whether it was open, and whether to come back.
func subscribe(ctx context.Context, broker tinybrokerv1.BrokerServiceClient, open *tinybrokerv1.OpenSubscription) (opened, again bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := broker.Subscribe(ctx)
	if err != nil {
		return false, comesBack(err), err
	}
	// Send's error is what Recv says.
	stream.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{Open: open}})
	for {
		frame, err := stream.Recv()
		if err != nil {
			// The trailers repeat what the last frame says, also for those who read on too late to get it.
			if reason := stream.Trailer().Get("tinybroker-close-reason"); len(reason) > 0 {
				lost := strings.Join(stream.Trailer().Get("tinybroker-close-lost"), "")
				return opened, comesBackAfter[reason[0]], fmt.Errorf("%s: %s messages lost", reason[0], lost)
			}
			return opened, comesBack(err), err
		}
		if o := frame.GetOpened(); o != nil {
			opened = true
			open.SubscriptionId = o.GetSubscriptionId() // the same id again: the next `opened` tells of this one's end
			fmt.Fprintln(os.Stderr, "subscribed as", o.GetSubscriptionId())
		}
		for _, m := range frame.GetMessages() {
			if _, err := fmt.Printf("%s %s\n", m.GetTopic(), m.GetPayload()); err != nil {
				return opened, false, err
			}
		}
	}
}

// Not after REPLACED, since another process has taken the id over, nor after KICKED, REVOKED or LEFT.
var comesBackAfter = map[string]bool{"CLOSE_REASON_EVICTED": true, "CLOSE_REASON_STALLED": true, "CLOSE_REASON_SHUTTING_DOWN": true}

func comesBack(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted:
		return true
	// What becomes of a broken connection, or of a proxy's answer. The broker has no such words for a subscription.
	case codes.Canceled, codes.DeadlineExceeded, codes.Internal, codes.Unknown:
		return true
	}
	return false
}
