package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/bench"
)

const (
	natsServerVersion = "v2.15.2"
	natsClientVersion = "v1.55.0"
	parentModule      = "codeberg.org/tinybroker/tinybroker"
	startPatience     = 10 * time.Second
	// stripped is how both are released: without what only a debugger reads.
	stripped = "-s -w"
)

func versions() string {
	return "nats-server " + natsServerVersion + ", nats.go " + natsClientVersion
}

// install builds what is not given by a flag into dir.
func (s *settings) install(ctx context.Context, dir string, log io.Writer) error {
	if s.nats == "" {
		fmt.Fprintln(log, "installing nats-server", natsServerVersion)
		cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", "-ldflags", stripped, "github.com/nats-io/nats-server/v2@"+natsServerVersion)
		cmd.Env = append(os.Environ(), "GOBIN="+dir)
		cmd.Dir = dir // the version counts, not what this module says
		if err := runLogged(cmd, log); err != nil {
			return err
		}
		s.nats = filepath.Join(dir, "nats-server")
	}
	if s.tiny == "" {
		fmt.Fprintln(log, "building tinybroker")
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", stripped, "-o", filepath.Join(dir, "tinybroker"), parentModule+"/cmd/tinybroker")
		root, err := checkout(ctx)
		if err != nil {
			return err
		}
		cmd.Dir = root
		if err := runLogged(cmd, log); err != nil {
			return err
		}
		s.tiny = filepath.Join(dir, "tinybroker")
	}
	return nil
}

// checkout is where the parent module is.
func checkout(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", parentModule).Output()
	if err != nil {
		return "", fmt.Errorf("%w; run this in internal/bench/peers", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func runLogged(cmd *exec.Cmd, log io.Writer) error {
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return nil
}

// server is a running server of either side.
type server struct {
	address string
	pid     int
	stop    func()
}

func (s *settings) startTiny(ctx context.Context) (*server, error) {
	b, err := bench.StartBroker(ctx, s.tiny, "--config", "none")
	if err != nil {
		return nil, err
	}
	return &server{b.Address, b.PID(), func() { _ = b.Close() }}, nil // the measurement is over
}

// startNATS starts a nats-server; with JetStream when jetStream is set.
func (s *settings) startNATS(ctx context.Context, jetStream bool) (*server, error) {
	dir, err := os.MkdirTemp("", "tinybroker-nats-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{"-a", "127.0.0.1", "-p", strconv.Itoa(port)}
	if jetStream {
		args = append(args, "-js", "-sd", dir)
	}
	cmd := exec.Command(s.nats, args...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	srv := &server{address, cmd.Process.Pid, func() {
		stopProcess(cmd)
		_ = os.RemoveAll(dir)
	}}
	if err := awaitPort(ctx, address); err != nil {
		srv.stop()
		return nil, fmt.Errorf("nats-server: %w", err)
	}
	return srv, nil
}

// startEcho starts this program as a gRPC server that echoes.
func startEcho() (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-echo")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		stopProcess(cmd)
		return nil, fmt.Errorf("echo server: %w", err)
	}
	return &server{strings.TrimSpace(line), cmd.Process.Pid, func() { stopProcess(cmd) }}, nil
}

// stopProcess ends a server and waits for its end.
func stopProcess(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(os.Interrupt)
	forced := time.AfterFunc(startPatience, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	forced.Stop()
}

// freePort asks the system for a port that nobody uses now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func awaitPort(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
