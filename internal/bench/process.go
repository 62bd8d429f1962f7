package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// startPatience is how long a broker may take to listen.
	startPatience = 10 * time.Second
	// stopPatience is how long it may take to end when told to.
	stopPatience = 10 * time.Second
)

// Broker is a broker in a process of its own, on a free loopback port.
type Broker struct {
	// Address is where clients reach it.
	Address string

	cmd    *exec.Cmd
	dir    string
	output output
	done   chan struct{} // closed when the process has ended
	err    error
}

// StartBroker runs `serve` of the program at path, with extra arguments, and returns once clients can connect. Close ends it. What the environment
// says to other brokers is not handed on: it might want the same address as one of those, or a credential.
func StartBroker(ctx context.Context, path string, args ...string) (*Broker, error) {
	dir, err := os.MkdirTemp("", "tinybroker-bench-")
	if err != nil {
		return nil, fmt.Errorf("start a broker: %w", err)
	}
	file := filepath.Join(dir, "address")
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--addr-file", file, "--log-level", "warn"}, args...)
	b := &Broker{cmd: exec.Command(path, args...), dir: dir, done: make(chan struct{})}
	b.cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "TINYBROKER_") })
	b.cmd.Stderr = &b.output
	if err := b.cmd.Start(); err != nil {
		_ = os.RemoveAll(dir) // it is empty
		return nil, fmt.Errorf("start a broker: %w", err)
	}
	go func() {
		defer close(b.done)
		b.err = b.cmd.Wait()
	}()
	if err := b.await(ctx, file); err != nil {
		_ = b.Close() // why it has ended is known
		return nil, fmt.Errorf("start a broker: %w", err)
	}
	return b, nil
}

// PID is the number of the broker's process.
func (b *Broker) PID() int { return b.cmd.Process.Pid }

// await waits for the file that tells the address.
func (b *Broker) await(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if text, err := os.ReadFile(file); err == nil {
			b.Address = strings.TrimSpace(string(text))
			return nil
		}
		select {
		case <-ticker.C:
		case <-b.done:
			return fmt.Errorf("it ended at once: %s", b.output.lastLine())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close stops the broker, by force if it does not stop by itself, and returns when its process has ended. An error: it ended
// badly, maybe long before.
func (b *Broker) Close() error {
	// Both fail only for a process that has ended, or where there are no signals.
	if b.cmd.Process.Signal(os.Interrupt) != nil {
		_ = b.cmd.Process.Kill()
	}
	forced := time.AfterFunc(stopPatience, func() { _ = b.cmd.Process.Kill() })
	<-b.done
	forced.Stop()
	err := os.RemoveAll(b.dir)
	if b.err != nil {
		err = fmt.Errorf("the broker ended with %w: %s", b.err, b.output.lastLine())
	}
	return err
}

// output keeps the end of what a process says. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text []byte
}

const keptOutput = 4 << 10

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if extra := len(o.text) - keptOutput; extra > 0 {
		o.text = append(o.text[:0], o.text[extra:]...)
	}
	return len(p), nil
}

func (o *output) lastLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(o.text), []byte("\n"))
	return string(lines[len(lines)-1])
}
