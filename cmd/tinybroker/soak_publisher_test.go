//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// soakWay is how a publisher hands over a message. It returns once the message is on its way; an error ends the soak.
type soakWay interface {
	send(ctx context.Context, n int, m *core.Message) error
	// end is called once, after the last message.
	end()
}

// soakPublisher sends numbers at a rate, with bursts in between. Whoever holds turn sends.
type soakPublisher struct {
	*soakSender
	s     *soak
	way   soakWay
	rate  int // messages a second
	burst int // how many at once, now and then; 0: none
	fat   int // size of the messages of a burst
	keys  int // how many keys; 0: none
	rng   *rand.Rand
	turn  sync.Mutex
}

func (p *soakPublisher) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / time.Duration(p.rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.turn.Lock()
		n, size := 1, 40+p.rng.IntN(300)
		if p.burst > 0 && p.rng.IntN(p.rate*3) == 0 {
			n, size = p.burst, p.fat
		}
		for ; n > 0 && ctx.Err() == nil && !p.s.atRest.Load(); n-- {
			p.sendOne(ctx, size, true)
		}
		p.turn.Unlock()
	}
}

// sendOne sends the next number. The turn is the caller's.
func (p *soakPublisher) sendOne(ctx context.Context, size int, mayPoison bool) {
	n := p.next()
	key := ""
	if p.keys > 0 {
		key = fmt.Sprint("k", p.rng.IntN(p.keys))
	}
	if mayPoison && p.rng.IntN(100) == 0 {
		p.mu.Lock()
		p.poison[n] = true
		p.mu.Unlock()
	}
	topic := p.topic(n)
	m := &core.Message{Topic: topic, Key: key, Payload: []byte(soakText(p.name, n, topic, key, size)), PublishTime: time.Now()}
	if err := p.way.send(ctx, n, m); err != nil && ctx.Err() == nil && !p.fate().gone {
		p.s.fault("publisher %s: %v", p.name, err)
	}
}

// unaryWay calls Publish again and again until a message is accepted. What the broker refuses was queued nowhere.
type unaryWay struct {
	client *rpc.Client
	sender *soakSender
}

func (w *unaryWay) send(ctx context.Context, n int, m *core.Message) error {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 3*time.Second)
		_, err := w.client.Publish(call, m, 0)
		cancel()
		switch {
		case err == nil:
			w.sender.confirm(n, time.Now())
			return nil
		case errors.Is(err, core.ErrGroupFull), errors.Is(err, core.ErrMemory), errors.Is(err, core.ErrDraining):
		case errors.Is(err, core.ErrTopicInvalid), errors.Is(err, core.ErrProtocol), errors.Is(err, core.ErrMessageTooLarge):
			return err
		default:
			w.sender.doubtUnconfirmed()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

func (w *unaryWay) end() { w.client.Close() }

// streamWay is a Publisher of the client.
type streamWay struct {
	client    *rpc.Client
	publisher *rpc.Publisher
}

// newStreamWay opens a publisher at address whose n-th message is the sender's number n.
func newStreamWay(s *soak, address string, sender *soakSender) (*streamWay, error) {
	client, err := rpc.Dial(s.ctx, s.tls.options(rpc.ClientOptions{Target: address, OnConnection: func(e rpc.ConnectionEvent) {
		if e.Lost {
			sender.doubtUnconfirmed()
		}
	}}))
	if err != nil {
		return nil, err
	}
	publisher, err := client.Publisher(s.ctx, rpc.PublisherOptions{MaxInFlight: 300, OnReceipt: func(r rpc.Receipt) {
		if r.Err != nil {
			sender.refuse(int(r.First), int(r.Last))
		}
		sender.confirm(int(r.Last), time.Now())
	}})
	if err != nil {
		client.Close()
		return nil, err
	}
	return &streamWay{client, publisher}, nil
}

func (w *streamWay) send(ctx context.Context, _ int, m *core.Message) error {
	_, err := w.publisher.Publish(ctx, m)
	return err
}

func (w *streamWay) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	w.publisher.Close(ctx)
	w.client.Close()
}

// cliWay is `tinybroker pub -i json -o json`. Receipts and what it says come through one pipe, so that it is known what was
// confirmed when the connection was lost.
type cliWay struct {
	*process
	sender *soakSender
}

func newCLIWay(s *soak, address string, sender *soakSender) *cliWay {
	read, write, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	w := &cliWay{sender: sender}
	w.process = start(s.t, []string{
		"pub", "-i", "json", "-o", "json", "-s", address, "--on-error", "continue", "--reconnect-timeout", "0", "--wait",
		"--max-inflight", "200", "--max-wait", "100ms",
	}, withStdin, s.tls.process, func(p *process) { p.cmd.Stdout, p.cmd.Stderr = write, write })
	write.Close()
	s.running.Go(func() { w.listen(s, read) })
	return w
}

func (w *cliWay) listen(s *soak, output *os.File) {
	defer output.Close()
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		var receipt struct {
			First, Last int
			Error       string
		}
		switch {
		case strings.HasPrefix(line, "{"):
			if err := json.Unmarshal([]byte(line), &receipt); err != nil {
				s.fault("receipt %q: %v", line, err)
				return
			}
			if receipt.Error != "" {
				w.sender.refuse(receipt.First, receipt.Last)
			}
			w.sender.confirm(receipt.Last, time.Now())
		case strings.Contains(line, "connection lost"):
			w.sender.doubtUnconfirmed()
		}
	}
}

func (w *cliWay) send(_ context.Context, _ int, m *core.Message) error {
	_, err := w.stdin.Write(appendMessageJSON(nil, m, 0, 0))
	return err
}

func (w *cliWay) end() {
	w.stdin.Close()
	w.process.end()
}

// kill ends the process at once. What it has not confirmed may have gone out or not.
func (w *cliWay) kill() {
	w.sender.mu.Lock()
	w.sender.gone = true
	w.sender.mu.Unlock()
	w.cmd.Process.Kill()
	<-w.done
	_ = w.stdin.(io.Closer).Close()
}
