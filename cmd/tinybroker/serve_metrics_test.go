//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// observed is a broker with its pages.
type observed struct {
	*broker
	url string
}

// startObserved starts a broker with its metrics on a free port.
func startObserved(t *testing.T, args ...string) *observed {
	t.Helper()
	b := startBroker(t, append([]string{"--metrics-listen", "127.0.0.1:0"}, args...)...)
	lines := strings.Split(b.address, "\n")
	b.address = lines[0]
	o := &observed{b, lines[len(lines)-1]}
	if !strings.HasPrefix(o.url, "http://127.0.0.1:") || len(lines) < 2 {
		t.Fatalf("%q", lines)
	}
	return o
}

// get fetches a page without a proxy or a connection that is kept.
func (o *observed) get(path string) (code int, body string) {
	o.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	r, err := client.Get(o.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		o.t.Errorf("%s: %v", path, err)
	}
	return r.StatusCode, string(text)
}

// metrics returns the series of /metrics that begin with prefix, by name and labels.
func (o *observed) metrics(prefix string) map[string]float64 {
	o.t.Helper()
	code, text := o.get("/metrics")
	if code != http.StatusOK {
		o.t.Fatalf("/metrics: %d %s", code, text)
	}
	all := map[string]float64{}
	scanner := bufio.NewScanner(strings.NewReader(text))
	for scanner.Scan() {
		line := scanner.Text()
		if strings.HasPrefix(line, "#") || !strings.HasPrefix(line, prefix) {
			continue
		}
		cut := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			o.t.Fatalf("%q: %v", line, err)
		}
		all[line[:cut]] = v
	}
	return all
}

func TestMetricsListenRules(t *testing.T) {
	cleanEnvironment(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--metrics-listen", "127.0.0.1:9999"}, 0, ""},
		{[]string{"--metrics-listen", "[::1]:9999", "--pprof"}, 0, ""},
		{[]string{"--metrics-listen", "unix:///tmp/m.sock"}, 0, ""},
		{[]string{"--metrics-listen", "off"}, 0, ""},
		{[]string{"--metrics-listen", "0.0.0.0:9999", "--insecure"}, 0, ""},
		{[]string{"--metrics-listen", "0.0.0.0:9999"}, exitConfig, `metrics_listen: "0.0.0.0:9999" can be reached from other machines, and metrics are shown to whoever asks`},
		{[]string{"--metrics-listen", ":9999"}, exitConfig, "can be reached from other machines"},
		{[]string{"--metrics-listen", "192.0.2.1:9999", "--pprof"}, exitConfig, "can be reached from other machines"},
		{[]string{"--metrics-listen", "9999"}, exitConfig, `metrics_listen: "9999" is not host:port or unix:///path`},
		{[]string{"--metrics-listen", "127.0.0.1:http9"}, exitConfig, "there is no port"},
		{[]string{"--metrics-listen", "unix://relative"}, exitConfig, "metrics_listen: \"unix://relative\" names no absolute path"},
		{[]string{"--pprof"}, exitConfig, "pprof: profiles are served on metrics_listen, which is off"},
	} {
		_, stderr, end := runHere(t, "", append([]string{"serve", "--config", "none", "--check-config"}, c.args...)...)
		if end.code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: %d %q", c.args, end.code, stderr)
		}
	}
}

// Metrics that cannot be had stop the start, and nothing else listens meanwhile.
func TestMetricsPortTaken(t *testing.T) {
	t.Parallel()
	o := startObserved(t)
	address := strings.TrimPrefix(o.url, "http://")
	socket := filepath.Join(t.TempDir(), "s")
	second := start(t, []string{"serve", "--listen", "unix://" + socket, "--metrics-listen", address})
	second.ended(exitUnavailable)
	want := "tinybroker: listen on " + address + ": address already in use; is another tinybroker running?\n" +
		"hint: --metrics-listen takes another address, or off\n"
	if got := second.stderr.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is left behind")
	}
}

func TestMetricsPages(t *testing.T) {
	t.Parallel()
	o := startObserved(t)
	o.says(`"msg":"metrics on ` + o.url + `","address":"` + o.url + `"`)
	o.pub("", "a.b", "hello")
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 200, "/": 404, "/debug/pprof/": 404, "/debug/vars": 404} {
		if code, body := o.get(path); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	m := o.metrics("")
	for name, want := range map[string]float64{
		"tinybroker_published_messages_total": 1,
		`grpc_server_started_total{grpc_method="PublishStream",grpc_service="tinybroker.v1.BrokerService",grpc_type="bidi_stream"}`: 1,
	} {
		if got, ok := m[name]; got != want || !ok {
			t.Errorf("%s is %v", name, got)
		}
	}
	if n := len(m); n < 250 || n > 350 {
		t.Errorf("%d lines, which docs/observability.md says are about three hundred", n)
	}
	if m["go_goroutines"] < 5 || m["process_resident_memory_bytes"] < 1<<20 {
		t.Errorf("%v goroutines, %v bytes", m["go_goroutines"], m["process_resident_memory_bytes"])
	}
	for name := range m {
		if strings.Contains(name, "a.b") || strings.Contains(name, "hello") {
			t.Errorf("shown: %s", name)
		}
	}
	if code, _ := startObserved(t, "--pprof").get("/debug/pprof/goroutine?debug=1"); code != 200 {
		t.Errorf("profile: %d", code)
	}
}

// By default nobody is shown anything, and what listens does so on loopback.
func TestNoPagesByDefault(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	if strings.Contains(b.address, "http") || strings.Contains(b.address, "\n") {
		t.Errorf("%q", b.address)
	}
	b.says("listening on ")
	if text := b.stderr.String(); strings.Contains(text, "metrics") {
		t.Error(text)
	}
	o := startObserved(t)
	host, port, err := net.SplitHostPort(strings.TrimPrefix(o.url, "http://"))
	if err != nil || host != "127.0.0.1" {
		t.Fatalf("%s, %v", o.url, err)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() {
			continue
		}
		if conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip.IP.String(), port), 100*time.Millisecond); err == nil {
			conn.Close()
			t.Errorf("answers on %s", ip.IP)
		}
	}
}

func TestMetricsOnAUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m")
	b := startBroker(t, "--metrics-listen", "unix://"+path)
	if lines := strings.Split(b.address, "\n"); len(lines) != 2 || lines[1] != "http+unix://"+path {
		t.Errorf("%q", lines)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(answer), "\r\n\r\nok\n") {
		t.Errorf("%q, %v", answer, err)
	}
}

// While the broker drains it is not ready, but it is well, and what it does can still be watched.
func TestNotReadyWhileDraining(t *testing.T) {
	t.Parallel()
	o := startObserved(t, "--shutdown-timeout", "2s")
	sub := o.sub([]string{"x"}, writing(stuckPipe(t)))
	o.pub(strings.Repeat("a line that nobody reads\n", 60_000), "x")
	if code, _ := o.get("/readyz"); code != http.StatusOK {
		t.Errorf("before: %d", code)
	}
	o.signal(syscall.SIGTERM)
	eventually(t, "it is not ready", func() bool {
		code, _ := o.get("/readyz")
		return code == http.StatusServiceUnavailable
	})
	if code, _ := o.get("/healthz"); code != http.StatusOK {
		t.Errorf("health while draining: %d", code)
	}
	if m := o.metrics("tinybroker_queued_messages"); m["tinybroker_queued_messages"] == 0 {
		t.Errorf("%v", m)
	}
	o.ended(0)
	if code, _ := o.get("/healthz"); code != 0 {
		t.Errorf("after the end: %d", code)
	}
	sub.signal(syscall.SIGKILL)
}

// Processes that are killed, in the middle of what they do, leave no trace in the gauges.
func TestGaugesAfterKilledProcesses(t *testing.T) {
	t.Parallel()
	o := startObserved(t, "--group-linger", "100ms")
	gauges := func() map[string]float64 {
		all := map[string]float64{}
		for _, name := range []string{"subscriptions", "groups", "connections", "queued_messages", "queued_bytes", "group_pending", "group_in_flight", "group_members"} {
			// The longer names that begin alike are counters.
			for series, v := range o.metrics("tinybroker_" + name) {
				if !strings.Contains(series, "_total") {
					all[series] = v
				}
			}
		}
		return all
	}
	before := gauges()
	var clients []*process
	for range 3 {
		clients = append(clients, o.sub([]string{"x"}, writing(stuckPipe(t))), o.sub([]string{"x", "--group", "work", "--exec", "sleep 60"}))
	}
	pub := start(t, []string{"pub", "x", "-s", o.address}, withStdin)
	fmt.Fprintln(pub.stdin, strings.Repeat("line\n", 1000))
	eventually(t, "all are at work", func() bool {
		m := o.metrics("tinybroker_")
		return m["tinybroker_connections"] == 7 && m[`tinybroker_group_in_flight{group="work"}`] > 0
	})
	for _, p := range append(clients, pub) {
		p.signal(syscall.SIGKILL)
	}
	eventually(t, "the gauges are what they were", func() bool { return maps.Equal(gauges(), before) })
	if m := o.metrics("tinybroker_subscriptions"); m["tinybroker_subscriptions_opened_total"] != 6 || m[`tinybroker_subscriptions_ended_total{reason="closed"}`] != 6 {
		t.Errorf("%v", m)
	}
}

// What is no text is refused, and neither the broker nor its metrics suffer.
func TestNamesThatAreNoText(t *testing.T) {
	t.Parallel()
	o := startObserved(t)
	for _, name := range []string{"\xff\xfe", "a\xe2\x82", "\xed\xa0\x80.x", "a\nb", "a\x1b[2J"} {
		for _, args := range [][]string{
			{"pub", name, "y"}, {"sub", name}, {"sub", "x", "--group", name}, {"sub", "x", "--client-name", name}, {"sub", "x", "--id", name},
		} {
			p := start(t, append(args, "-s", o.address, "--for", "1s")[:len(args)+2])
			if code := p.end(); code == 0 || code > 128 {
				t.Errorf("%q: %d", args, code)
			}
			if text := p.stderr.String(); strings.Contains(text, "\xff") || strings.Contains(text, "\x1b") {
				t.Errorf("%q: %q", args, text)
			}
		}
	}
	sub := o.sub([]string{"**", "--client-name", `"quoted" 🦀`, "--group", `"quoted"`})
	o.pub("", "🦀", "odd and legal")
	sub.printed("odd and legal\n")
	eventually(t, "the group is shown", func() bool {
		return o.metrics("tinybroker_group_members")[`tinybroker_group_members{group="\"quoted\""}`] == 1
	})
	o.says(`"msg":"connection closed"`)
	for line := range strings.Lines(o.stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%q", line)
		}
	}
}

// A trace goes through untouched: to every subscriber, to a worker once more after a failure, and into the dead letter.
func TestTraceContextPassesThrough(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "--max-attempts", "2")
	trace := map[string]string{
		"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"tracestate":  "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
	}
	type received struct {
		Topic   string
		Headers map[string]string
		Attempt int
		Data    string
	}
	read := func(p *process, n int) (all []received) {
		eventually(t, "has printed", func() bool { return strings.Count(p.stdout.String(), "\n") >= n })
		for line := range strings.Lines(p.stdout.String()) {
			var r received
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			all = append(all, r)
		}
		return all
	}
	broadcast := b.sub([]string{"jobs", "-o", "json"})
	letters := b.sub([]string{"$tb.dlq.work", "-o", "json"})
	seen := filepath.Join(t.TempDir(), "seen")
	b.sub([]string{"jobs", "--group", "work", "--exec", `echo "$TINYBROKER_ATTEMPT $TINYBROKER_HEADER_TRACEPARENT" >>` + seen + `; exit 1`})
	b.pub("", "jobs", "one", "-H", "traceparent:"+trace["traceparent"], "-H", "tracestate:"+trace["tracestate"])
	b.pub(`{"topic":"jobs","data":"two","headers":{"traceparent":"`+trace["traceparent"]+`","tracestate":"`+trace["tracestate"]+`"}}`+"\n", "-i", "json")
	for _, r := range read(broadcast, 2) {
		if !maps.Equal(r.Headers, trace) {
			t.Errorf("%+v", r)
		}
	}
	for _, r := range read(letters, 2) {
		if r.Headers["traceparent"] != trace["traceparent"] || r.Headers["tracestate"] != trace["tracestate"] || r.Headers["tinybroker-attempts"] != "2" {
			t.Errorf("%+v", r)
		}
	}
	for _, attempt := range []string{"1", "2"} {
		if n := strings.Count(readFile(t, seen), attempt+" "+trace["traceparent"]+"\n"); n != 2 {
			t.Errorf("attempt %s: %d of 2 had the trace:\n%s", attempt, n, readFile(t, seen))
		}
	}
}
