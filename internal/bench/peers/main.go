package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	runs  int
	rows  string
	quick bool
	list  bool

	// For the processes that measure, which this program starts.
	one     string
	echo    bool
	scale   float64
	tiny    string
	nats    string
	profile string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	var s settings
	fs := flag.NewFlagSet("peers", flag.ContinueOnError)
	fs.IntVar(&s.runs, "runs", 5, "how often to measure each side of each row")
	fs.StringVar(&s.rows, "rows", "", "rows to measure, parted by commas: names, or how they begin (default: all)")
	fs.BoolVar(&s.quick, "quick", false, "a tenth of the messages, to see whether it works")
	fs.BoolVar(&s.list, "list", false, "list the rows and exit")
	fs.StringVar(&s.tiny, "tinybroker", "", "`program` to measure (default: built from this checkout)")
	fs.StringVar(&s.nats, "nats-server", "", "`program` to measure (default: installed for this run)")
	fs.StringVar(&s.profile, "profile", "", "`directory` for processor profiles of the processes that put on the load")
	fs.StringVar(&s.one, "one", "", "internal: measure one side of one `row`, as ROW:SIDE")
	fs.BoolVar(&s.echo, "echo", false, "internal: be a gRPC server that echoes")
	fs.Float64Var(&s.scale, "scale", 1, "internal: factor of the number of messages")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case s.echo:
		return serveEcho(ctx, out)
	case s.one != "":
		return measureOne(ctx, &s, out)
	}
	chosen, err := chooseRows(s.rows)
	if err != nil {
		return err
	}
	if s.list {
		for _, r := range chosen {
			fmt.Fprintf(out, "%-12s %s; beside %s\n", r.name, r.title, r.peer)
		}
		return nil
	}
	return compare(ctx, &s, chosen, out, log)
}

// compare measures both sides of each row in turn and prints the table.
func compare(ctx context.Context, s *settings, chosen []row, out, log io.Writer) error {
	dir, err := os.MkdirTemp("", "tinybroker-peers-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := s.install(ctx, dir, log); err != nil {
		return err
	}
	if s.quick {
		s.scale = 0.1
	}
	results := newResults(chosen)
	for n := range s.runs {
		for _, r := range chosen {
			sides := []string{sideTiny, sidePeer}
			if n%2 == 1 {
				sides[0], sides[1] = sides[1], sides[0]
			}
			for _, side := range sides {
				values, err := s.measure(ctx, r.name, side)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				fmt.Fprintf(log, "%d/%d %-10s %-10s %s\n", n+1, s.runs, r.name, side, describe(values, err))
				results.add(r.name, side, values, err)
			}
		}
	}
	fmt.Fprint(out, results.table(s))
	return results.err()
}

// measure has one side of a row measured by another process.
func (s *settings) measure(ctx context.Context, name, side string) ([]float64, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-one", name+":"+side, "-tinybroker", s.tiny, "-nats-server", s.nats,
		"-scale", strconv.FormatFloat(s.scale, 'g', -1, 64), "-profile", s.profile)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it has a server to stop
	cmd.WaitDelay = 20 * time.Second
	ownGroup(cmd)
	defer endGroup(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return nil, fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	var values []float64
	if err := json.Unmarshal(stdout.Bytes(), &values); err != nil {
		return nil, err
	}
	return values, nil
}

// measureOne is what such a process does.
func measureOne(ctx context.Context, s *settings, out io.Writer) error {
	name, side, _ := strings.Cut(s.one, ":")
	chosen, err := chooseRows(name)
	if err != nil {
		return err
	}
	stop, err := startProfile(s.profile, name+"-"+side)
	if err != nil {
		return err
	}
	defer stop()
	measure := chosen[0].tiny
	if side == sidePeer {
		measure = chosen[0].other
	}
	values, err := measure(ctx, s)
	if err != nil {
		return err
	}
	if len(values) != len(chosen[0].metrics) {
		return errors.New("not as many values as metrics")
	}
	return json.NewEncoder(out).Encode(values)
}
