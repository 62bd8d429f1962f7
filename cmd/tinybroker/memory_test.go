//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// memoryBound is what docs/architecture.md says a broker stays under.
func memoryBound(maxMemory int64, connections, calls int) int64 {
	held := maxMemory                            // messages
	parts := max(maxMemory/4, 32<<20, 8<<20)     // requests in part, 8 times max_message_size at least
	room := min(max(maxMemory/4, 32<<20), 1<<30) // garbage
	return held + parts + room + int64(connections)*(512<<10) + int64(calls)*(64<<10) + 64<<20
}

// needsItsOwnMemory skips a test of what a process takes where the race detector takes several times that, and all processors. make memory runs it
// without; the other tests of this kind look for races under it, and leave the bound alone.
func needsItsOwnMemory(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector takes memory and time of its own; make memory runs this without it")
	}
}

// residentUnder wants resident bytes to be bound at most. Under the race detector, which takes several times as much, it wants nothing.
func residentUnder(t *testing.T, resident, bound int64) {
	t.Helper()
	if resident > bound && !raceEnabled {
		t.Errorf("%d MiB resident, the bound is %d MiB", resident>>20, bound>>20)
	}
}

// resident is the process's resident memory.
func (b *broker) resident() int64 { return b.memoryLine("VmRSS:") }

// peak is the most that was.
func (b *broker) peak() int64 { return b.memoryLine("VmHWM:") }

func (b *broker) memoryLine(name string) int64 {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			var kib int64
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				b.t.Fatal(err)
			}
			return kib << 10
		}
	}
	b.t.Fatalf("no %s", name)
	return 0
}

// stub is a stock client with a connection of its own.
func (b *broker) stub(options ...grpc.DialOption) tinybrokerv1.BrokerServiceClient {
	b.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+b.address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	return tinybrokerv1.NewBrokerServiceClient(conn)
}

// subscribeStub opens a subscription and reads `opened`.
func subscribeStub(ctx context.Context, t *testing.T, stub tinybrokerv1.BrokerServiceClient, pattern string) tinybrokerv1.BrokerService_SubscribeClient {
	t.Helper()
	stream, err := stub.Subscribe(ctx)
	if err == nil {
		err = stream.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{
			Open: &tinybrokerv1.OpenSubscription{TopicPatterns: []string{pattern}},
		}})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// memoryProbe publishes and receives a small message a hundred times a second until stop, and returns how long that took.
func memoryProbe(t *testing.T, b *broker) (stop func() []time.Duration) {
	t.Helper()
	stub := b.stub()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	topic := fmt.Sprint("probe.", time.Now().UnixNano())
	sub := subscribeStub(ctx, t, stub, topic)
	done := make(chan struct{})
	var took []time.Duration
	var running sync.WaitGroup
	running.Go(func() {
		for n := uint64(0); ; n++ {
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
			begun := time.Now()
			payload := binary.BigEndian.AppendUint64(nil, n)
			if r, err := stub.Publish(ctx, &tinybrokerv1.PublishRequest{Topic: topic, Payload: payload}); err != nil || r.GetReceivers() != 1 {
				t.Errorf("probe %d: %v, %v", n, r, err)
				return
			}
			r, err := sub.Recv()
			if err != nil || len(r.GetMessages()) != 1 || !bytes.Equal(r.GetMessages()[0].GetPayload(), payload) {
				t.Errorf("probe %d: received %v, %v", n, r, err)
				return
			}
			took = append(took, time.Since(begun))
		}
	})
	return sync.OnceValue(func() []time.Duration {
		close(done)
		running.Wait()
		slices.Sort(took)
		return took
	})
}

func p99(sorted []time.Duration) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)*99/100]
}

// freeze opens subscriptions that are never read, each on a topic and a connection of its own, and returns how to close them.
func (b *broker) freeze(n int) (thaw func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	b.t.Cleanup(cancel)
	for i := range n {
		stub := b.stub(grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
		subscribeStub(ctx, b.t, stub, fmt.Sprint("frozen.", i))
	}
	return cancel
}

// TestMemoryUnderLoad: a gigabyte thrown at a broker with 256 MiB, all of it at subscriptions that do not read; as fast as it can be, and as fast as it is
// without filling the processors. The process stays under the stated bound, whoever reads loses nothing, and soon after the broker is as it was.
func TestMemoryUnderLoad(t *testing.T) {
	needsItsOwnMemory(t)
	for _, test := range []struct {
		name  string
		pace  time.Duration
		later time.Duration // by how much the probe's p99 may grow; other tests may be at work
	}{
		{"flat out", 0, 250 * time.Millisecond},
		{"100 MiB a second", 500 * time.Millisecond, 25 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) { throwAGigabyte(t, test.pace, test.later) })
	}
}

func throwAGigabyte(t *testing.T, pace, later time.Duration) {
	const maxMemory, frozen, publishers, size, total = 256 << 20, 20, 50, 1 << 20, 1 << 30
	b := startBroker(t, "--max-memory", "256MiB")
	stop := memoryProbe(t, b)
	thaw := b.freeze(frozen)
	time.Sleep(time.Second)
	calm := p99(stop())
	baseline := b.resident()
	stop = memoryProbe(t, b)
	begun := time.Now()
	accepted, refused := b.throw(loadOf{publishers: publishers, messages: total / size / publishers, size: size - 100, topics: frozen, pace: pace})
	lasted := time.Since(begun)
	took := stop()
	bound := memoryBound(maxMemory, publishers+frozen+2, publishers+frozen+2)
	peak := b.peak()
	t.Logf("in %s: resident %d MiB before, %d MiB at most, the bound is %d MiB; %d accepted, %d refused; the probe's p50 %s, p99 %s, %s without load",
		lasted.Round(time.Millisecond), baseline>>20, peak>>20, bound>>20, accepted, refused, took[len(took)/2], p99(took), calm)
	residentUnder(t, peak, bound)
	if p := p99(took); p > 10*calm+later {
		t.Errorf("the probe's p99 is %s, %s without load", p, calm)
	}
	thaw()
	calmed := time.Now()
	for b.resident() > baseline+32<<20 || b.memory() > 0 {
		if time.Since(calmed) > 30*time.Second {
			t.Fatalf("30 s later %d MiB are resident, %d before; %d bytes held", b.resident()>>20, baseline>>20, b.memory())
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d MiB resident %s later", b.resident()>>20, time.Since(calmed).Round(time.Millisecond))
}

// rawConn speaks HTTP/2 by hand.
type rawConn struct {
	net.Conn
	*http2.Framer
	next uint32
}

func (b *broker) rawConn(settings ...http2.Setting) *rawConn {
	b.t.Helper()
	c, err := net.Dial("tcp", b.address)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	raw := &rawConn{Conn: c, Framer: http2.NewFramer(c, c), next: 1}
	_, err = c.Write([]byte(http2.ClientPreface))
	if err == nil {
		err = raw.WriteSettings(settings...)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	go func() {
		for err == nil {
			_, err = raw.ReadFrame()
		}
	}()
	return raw
}

// begin begins a call.
func (c *rawConn) begin(method string, more ...[2]string) (id uint32, err error) {
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	headers := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "test"}, {"content-type", "application/grpc"}, {"te", "trailers"}}
	for _, h := range append(headers, more...) {
		if err := encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true}); err != nil {
			return 0, err
		}
	}
	id = c.next
	c.next += 2
	return id, c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: header.Bytes(), EndHeaders: true})
}

// half begins a call and sends part of a message that is said to be of size bytes.
func (c *rawConn) half(method string, size, part int) error {
	id, err := c.begin(method)
	if err != nil {
		return err
	}
	data := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, part)...)
	for chunk := range slices.Chunk(data, 4<<10+1) { // takes a buffer of 16 KiB each
		if err := c.WriteData(id, false, chunk); err != nil {
			return err
		}
	}
	return nil
}

// TestHalfSentUnderLoad: messages that are never sent to their end, on hundreds of streams.
func TestHalfSentUnderLoad(t *testing.T) {
	const maxMemory, connections, streams = 64 << 20, 10, 60
	b := startBroker(t, "--max-memory", "64MiB")
	stop := memoryProbe(t, b)
	var attack sync.WaitGroup
	methods := []string{
		tinybrokerv1.BrokerService_PublishStream_FullMethodName, tinybrokerv1.BrokerService_Publish_FullMethodName,
		tinybrokerv1.BrokerService_Subscribe_FullMethodName, tinybrokerv1.AdminService_Watch_FullMethodName,
	}
	for range connections {
		attack.Go(func() {
			c := b.rawConn()
			for i := range streams {
				if c.half(methods[i%len(methods)], 2<<20, 1<<20-100) != nil {
					c = b.rawConn() // the broker has closed it
				}
			}
		})
	}
	attack.Wait()
	bound := memoryBound(maxMemory, connections+1, connections*streams)
	peak, took := b.peak(), stop()
	t.Logf("%d MiB resident at most, the bound is %d MiB, %d MiB were sent; the probe's p99 %s", peak>>20, bound>>20, connections*streams, p99(took))
	residentUnder(t, peak, bound)
}

// TestStopUnderLoad: SIGTERM while publishers publish and frozen subscriptions hold what they get. The broker ends in time and with 0, and what was
// confirmed has reached whoever reads.
func TestStopUnderLoad(t *testing.T) {
	const timeout = 3 * time.Second
	b := startBroker(t, "--max-memory", "256MiB", "--shutdown-timeout", timeout.String())
	b.freeze(20)
	reading := b.stub()
	sub := subscribeStub(t.Context(), t, reading, "read.*")
	received := map[string]bool{}
	read := make(chan error, 1)
	go func() {
		for {
			r, err := sub.Recv()
			if err != nil {
				read <- err
				return
			}
			for _, m := range r.GetMessages() {
				received[m.GetTopic()+string(m.GetPayload()[:8])] = true
			}
		}
	}()
	var mu sync.Mutex
	confirmed := map[string]bool{}
	var load sync.WaitGroup
	for i := range 50 {
		stub := b.stub()
		load.Go(func() {
			for n := uint64(0); ; n++ {
				payload := append(binary.BigEndian.AppendUint64(nil, n), make([]byte, 1<<20-200)...)
				topic := fmt.Sprint("frozen.", n%20)
				if i < 10 {
					topic, payload = fmt.Sprint("read.", i), payload[:64<<10]
				}
				_, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: topic, Payload: payload})
				switch {
				case status.Code(err) == codes.ResourceExhausted:
				case err != nil:
					return
				case i < 10:
					mu.Lock()
					confirmed[topic+string(payload[:8])] = true
					mu.Unlock()
				}
			}
		})
	}
	time.Sleep(2 * time.Second)
	b.signal(syscall.SIGTERM)
	begun := time.Now()
	b.ended(0)
	took := time.Since(begun)
	load.Wait()
	err := <-read
	missing := 0
	for m := range confirmed {
		if !received[m] {
			missing++
		}
	}
	t.Logf("ended after %s; %d confirmed, %d received, then %v", took.Round(time.Millisecond), len(confirmed), len(received), err)
	if took > timeout+time.Second {
		t.Errorf("the broker took %s to end", took)
	}
	if missing > 0 || len(confirmed) == 0 || status.Code(err) != codes.Unavailable {
		t.Errorf("%d of %d confirmed messages are missing; the reader's stream ended with %v", missing, len(confirmed), err)
	}
}

// TestGiver: memory is given back once a broker is quiet, and not again and again.
func TestGiver(t *testing.T) {
	const mib = 1 << 20
	var g giver
	for i, step := range []struct {
		taken  int64
		cycles uint64
		due    bool
		left   int64 // after it was given back
	}{
		{10 * mib, 1, false, 0},
		{400 * mib, 9, false, 0}, // at work
		{400 * mib, 15, false, 0},
		{400 * mib, 15, true, 100 * mib}, // quiet
		{101 * mib, 16, false, 0},
		{105 * mib, 16, false, 0}, // and clean, though it is more than at first
		{20 * mib, 17, false, 0},
		{20 * mib, 17, false, 0},
		{50 * mib, 17, true, 20 * mib}, // more than at the cleanest
	} {
		if due := g.due(step.taken, step.cycles); due != step.due {
			t.Errorf("step %d: %v", i, due)
		}
		if step.due {
			g.given(step.left, step.cycles+1)
		}
	}
}

// TestOutOfDescriptors: a broker that has run out of descriptors goes on serving those it has, takes new clients as soon as others leave, and
// neither spins nor fills its log.
func TestOutOfDescriptors(t *testing.T) {
	b := startBroker(t)
	stop := memoryProbe(t, b)
	limit := unix.Rlimit{Cur: 64, Max: 64}
	if err := unix.Prlimit(b.cmd.Process.Pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	var busy []net.Conn
	for range 80 { // each with a call, so that none of them is idle
		c, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		raw := &rawConn{Conn: c, Framer: http2.NewFramer(c, c), next: 1}
		_, _ = c.Write([]byte(http2.ClientPreface))
		_ = raw.WriteSettings()
		_ = raw.half(tinybrokerv1.BrokerService_PublishStream_FullMethodName, 100, 10)
		busy = append(busy, c)
	}
	b.says("cannot accept connections")
	before, begun := b.cpu(), time.Now()
	time.Sleep(3 * time.Second)
	if used, passed := b.cpu()-before, time.Since(begun); used > passed/5 {
		t.Errorf("%s of processor time in %s", used, passed)
	}
	lines := strings.Count(b.stderr.String(), "cannot accept connections")
	if passed := int(time.Since(begun).Seconds()); lines > passed+3 {
		t.Errorf("%d lines in %d s", lines, passed)
	}
	for _, c := range busy[:40] {
		_ = c.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := b.stub().Publish(ctx, &tinybrokerv1.PublishRequest{Topic: "a"}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("a client that came when others had left: %v", err)
	}
	if len(stop()) < 100 {
		t.Error("the probe was held up")
	}
	b.signal(syscall.SIGTERM)
	b.ended(0)
}

// cpu is the processor time that the process has used.
func (b *broker) cpu() time.Duration {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		b.t.Fatal(err)
	}
	return time.Duration(user+system) * time.Second / 100
}
