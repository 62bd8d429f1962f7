//go:build unix

package main

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rudeCalls opens a connection that reads nothing, answers nothing, and has calls open, each with the beginning of a request: a
// length, and what there is of it.
func rudeCalls(t *testing.T, address string, methods map[string][]byte) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	stream := uint32(1)
	for method, data := range methods {
		block.Reset()
		for _, h := range [][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
		} {
			if err := encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		if data != nil {
			if err := framer.WriteData(stream, false, data); err != nil {
				t.Fatal(err)
			}
		}
		stream += 2
	}
}

// request is a gRPC message of size bytes, of which only body is sent.
func request(size int, body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), body...)
}

// everyKindOfClient connects clients that would keep a broker for ever if it let them, and waits until it knows them.
func everyKindOfClient(t *testing.T, b *broker) {
	t.Helper()
	// One that never says anything, and one that stops in the middle of saying hello.
	for _, words := range []string{"", "PRI * HT"} {
		conn, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write([]byte(words)); err != nil {
			t.Fatal(err)
		}
	}
	rudeCalls(t, b.address, map[string][]byte{
		"/tinybroker.v1.BrokerService/Publish":                           request(1000, 10, 1, 'x'), // half sent
		"/tinybroker.v1.BrokerService/PublishStream":                     request(1000, 10, 1, 'x'),
		"/tinybroker.v1.BrokerService/Subscribe":                         nil, // never says what to
		"/tinybroker.v1.AdminService/Watch":                              request(0),
		"/grpc.health.v1.Health/Watch":                                   request(0),
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      nil,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": request(2, 0x3a, 0), // list_services, and no end
	})
	// Subscribers whose process or reader has stopped, with full queues, and a member that acknowledges nothing.
	frozen := b.sub([]string{"full"}, writing(stuckPipe(t)))
	b.sub([]string{"full"}, writing(stuckPipe(t)))
	b.sub([]string{"full", "-g", "workers"}, writing(stuckPipe(t)))
	line := strings.Repeat("x", 1000) + "\n"
	b.pub(strings.Repeat(line, 3000), "full", "--max-wait", "0")
	frozen.signal(syscall.SIGSTOP)
	// A publisher that waits for them with all its patience.
	start(t, []string{"pub", "full", "-s", b.address, "--max-wait", "1h"}, reading(strings.NewReader(strings.Repeat(line, 100_000))))
}

// A broker that is told to stop does so in time, with status 0, whatever its clients do, and says in numbers what it has cut
// off. Who reads gets every message that was confirmed.
func TestStopsInTimeWhateverClientsDo(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second
	b := startBroker(t, "--shutdown-timeout", timeout.String(), "--consumer-capacity", "5000")
	healthy := []*process{b.sub([]string{"n"}), b.sub([]string{"n"}), b.sub([]string{"n", "-g", "readers"})}
	everyKindOfClient(t, b)
	pub := start(t, []string{"pub", "n", "-s", b.address, "-v", "--max-wait", "10s", "--reconnect-timeout", "1s"}, withStdin)
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := 1; ; n++ {
			if _, err := fmt.Fprintln(pub.stdin, n); err != nil {
				return
			}
		}
	})
	pub.says("line 5000: accepted")

	b.signal(syscall.SIGTERM)
	began := time.Now()
	b.ended(0)
	took := time.Since(began)
	t.Logf("stopped after %v", took.Round(10*time.Millisecond))
	if took > timeout+time.Second {
		t.Error("too late")
	}
	cut := regexp.MustCompile(`"msg":"stopped before everything was delivered","after":"[^"]+","subscriptions":([\d]+),"queued":([\d]+),"in_flight":([\d]+)}`).
		FindStringSubmatch(b.stderr.String())
	if cut == nil || slices.Contains(cut[1:], "0") {
		t.Errorf("it says %q", cut)
	}
	pub.ended(exitUnavailable)
	writing.Wait()
	accepted := regexp.MustCompile(`(?m)^line (\d+): accepted`).FindAllStringSubmatch(pub.stderr.String(), -1)
	confirmed, err := strconv.Atoi(accepted[len(accepted)-1][1])
	if err != nil || confirmed != len(accepted) {
		t.Errorf("%d confirmations up to %q", len(accepted), accepted[len(accepted)-1][1])
	}
	for _, sub := range healthy {
		sub.says("connection lost")
		lines := strings.Fields(sub.stdout.String())
		for i, line := range lines {
			if line != strconv.Itoa(i+1) {
				t.Fatalf("line %d is %q", i+1, line)
			}
		}
		if len(lines) < confirmed {
			t.Errorf("%d of %d confirmed messages", len(lines), confirmed)
		}
	}
}

// With TLS, connections that have said nothing, or not all of it, do not hold it up at all.
func TestStopWithHalfHandshakes(t *testing.T) {
	t.Parallel()
	f := newFortress(t, "--shutdown-timeout", "1h")
	for _, words := range []string{"", "\x16\x03\x01\x02\x00\x01", "PRI * HT"} {
		conn, err := net.Dial("tcp", f.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write([]byte(words)); err != nil {
			t.Fatal(err)
		}
	}
	for _, words := range []string{"", http2.ClientPreface[:10]} {
		conn, err := tls.Dial("tcp", f.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // a test
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write([]byte(words)); err != nil {
			t.Fatal(err)
		}
	}
	f.signal(syscall.SIGTERM)
	began := time.Now()
	f.ended(0)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
}

// With clients of every kind the second signal ends it at once.
func TestSecondSignalWhateverClientsDo(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--shutdown-timeout", "1h", "--consumer-capacity", "5000")
	everyKindOfClient(t, b)
	b.signal(syscall.SIGTERM)
	b.says(`"msg":"stopping"`)
	time.Sleep(2 * sameSignal) // nobody's finger is faster
	began := time.Now()
	b.signal(syscall.SIGTERM)
	b.ended(128 + int(syscall.SIGTERM))
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
}

// A stop that waits for nothing, and has nothing to wait for, has cut nothing off.
func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--shutdown-timeout", "0")
	b.pub("1\n", "nobody.listens")
	b.signal(syscall.SIGTERM)
	b.ended(0)
	if got := b.stderr.String(); !strings.Contains(got, `"level":"INFO","msg":"stopped"`) || strings.Contains(got, "WARN") {
		t.Error(got)
	}
	b = startBroker(t, "--shutdown-timeout", "0")
	b.sub([]string{"x"}, writing(stuckPipe(t)))
	b.pub(strings.Repeat(strings.Repeat("x", 1000)+"\n", 5000), "x", "--max-wait", "0")
	b.signal(syscall.SIGTERM)
	b.ended(0)
	b.says(`"msg":"stopped before everything was delivered"`)
	b.says(`"subscriptions":1,"queued":`)
}

// What groups hold when nobody is left to take it goes with the broker, and it says how much that is.
func TestStopTellsWhatGroupsLose(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	b.sub([]string{"jobs", "-g", "workers", "-n", "1"})
	b.pub("1\n2\n3\n4\n", "jobs")
	eventually(t, "the member has left", func() bool { return strings.Contains(b.status(), `"subscriptions":0,`) })
	b.signal(syscall.SIGTERM)
	b.ended(0)
	if got := b.stderr.String(); !strings.Contains(got, `"msg":"stopped with messages in groups without a member","after":"`) || !strings.Contains(got, `"groups":1,"messages":3}`) {
		t.Error(got)
	}
}
