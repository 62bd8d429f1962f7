package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

const (
	starts = 20
	// settleEvery is in how many starts one server is kept until it has settled.
	settleEvery = 4
	// settleTime is how long a server runs before its memory is looked at.
	settleTime = 3 * time.Second
	// dialPause is the time between two attempts to connect, and so how exact the time to listening is.
	dialPause = 200 * time.Microsecond
)

func tinyStart(ctx context.Context, s *settings) ([]float64, error) {
	return startFigures(ctx, s.tiny, func(port string) []string {
		return []string{"serve", "--config", "none", "--listen", "127.0.0.1:" + port}
	})
}

func natsStart(ctx context.Context, s *settings) ([]float64, error) {
	return startFigures(ctx, s.nats, func(port string) []string { return []string{"-a", "127.0.0.1", "-p", port} })
}

// startFigures measures a program of which nothing is wanted: its size in MiB, the milliseconds from its start until a client is
// connected (the median of many), and the MiB of memory that it then has in use.
func startFigures(ctx context.Context, program string, args func(port string) []string) ([]float64, error) {
	info, err := os.Stat(program)
	if err != nil {
		return nil, err
	}
	var times, memory []float64
	for n := range starts {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		took, resident, err := startOnce(ctx, exec.Command(program, args(strconv.Itoa(port))...), "127.0.0.1:"+strconv.Itoa(port), n%settleEvery == 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", program, err)
		}
		times = append(times, took.Seconds()*1000)
		if n%settleEvery == 0 {
			memory = append(memory, float64(resident)/1024)
		}
	}
	return []float64{float64(info.Size()) / (1 << 20), median(times), median(memory)}, nil
}

// startOnce returns the time from the start of the server until it takes a connection and, if asked to, the KiB that it has in use
// when it has settled.
func startOnce(ctx context.Context, cmd *exec.Cmd, address string, settled bool) (took time.Duration, resident int64, err error) {
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	defer stopProcess(cmd)
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		took = time.Since(began)
		if err == nil {
			conn.Close()
			break
		}
		if took > startPatience {
			return 0, 0, errors.Join(errors.New("it does not listen"), err)
		}
		if err := pause(ctx, dialPause); err != nil {
			return 0, 0, err
		}
	}
	if !settled {
		return took, 0, nil
	}
	if err := pause(ctx, settleTime); err != nil {
		return 0, 0, err
	}
	resident, err = residentKiB(cmd.Process.Pid)
	return took, resident, err
}
