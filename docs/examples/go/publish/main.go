// Publish publishes each line of standard input to a topic, with plain grpc-go and the generated stubs:
//
//	go run ./docs/examples/go/publish TOPIC < lines
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"codeberg.org/tinybroker/tinybroker/docs/examples/go/client"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: publish TOPIC < lines")
		os.Exit(64)
	}
	if err := run(context.Background(), os.Args[1], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "publish:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, topic string, lines io.Reader) error {
	conn, err := client.Connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := tinybrokerv1.NewBrokerServiceClient(conn).PublishStream(ctx)
	if err != nil {
		return err
	}
	// Receipts are read beside the writing: a publisher that does not read them is not read from.
	receipts := make(chan error, 1)
	var confirmed, refused uint64
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				receipts <- err
				return
			}
			confirmed = r.GetAcceptedThrough()
			for _, f := range r.GetFailures() {
				refused += max(f.GetCount(), 1)
				fmt.Fprintf(os.Stderr, "message %d: %s: %s\n", f.GetPosition(), f.GetReason(), f.GetText())
			}
		}
	}()
	sent, readErr := sendLines(stream, topic, lines)
	stream.CloseSend()
	if err := <-receipts; !errors.Is(err, io.EOF) {
		return fmt.Errorf("%d of %d messages are unconfirmed: %w", sent-confirmed, sent, err)
	}
	fmt.Fprintf(os.Stderr, "%d messages, %d refused\n", sent, refused)
	if refused > 0 && readErr == nil {
		readErr = errors.New("messages were refused")
	}
	return readErr
}

// sendLines returns how many lines were sent. A line that comes alone goes out alone; those that wait share a frame.
func sendLines(stream tinybrokerv1.BrokerService_PublishStreamClient, topic string, lines io.Reader) (uint64, error) {
	in := bufio.NewReader(lines)
	var sent uint64
	bytes := 0 // of the frame, which may have 4 MiB
	frame := &tinybrokerv1.PublishStreamRequest{MaxWait: durationpb.New(5 * time.Second)}
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			if line[len(line)-1] == '\n' {
				line = line[:len(line)-1]
			}
			bytes += len(line)
			frame.Messages = append(frame.Messages, &tinybrokerv1.Message{Topic: topic, Payload: line, PublishTime: timestamppb.Now()})
		}
		if len(frame.Messages) > 0 && (err != nil || in.Buffered() == 0 || len(frame.Messages) == 100 || bytes >= 64<<10) {
			// Send waits while the broker holds this publisher back. Its error is what Recv says.
			if stream.Send(frame) != nil {
				return sent, nil
			}
			sent += uint64(len(frame.Messages))
			frame.Messages, bytes = nil, 0
		}
		if errors.Is(err, io.EOF) {
			return sent, nil
		}
		if err != nil {
			return sent, err
		}
	}
}
