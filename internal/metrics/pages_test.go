package metrics

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

func get(p *Pages, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestPages(t *testing.T) {
	p := newPages(t, newBroker(t, nil))
	var ready atomic.Bool
	p.Ready = ready.Load
	for _, c := range []struct {
		method, path string
		ready        bool
		code         int
		body         string
	}{
		{"GET", "/healthz", false, 200, "ok\n"},
		{"GET", "/healthz", true, 200, "ok\n"},
		{"GET", "/readyz", false, 503, "not ready\n"},
		{"GET", "/readyz", true, 200, "ready\n"},
		{"HEAD", "/readyz", true, 200, "ready\n"}, // what sends it leaves the body out
		{"GET", "/", true, 404, "404 page not found\n"},
		{"GET", "/metrics/", true, 404, "404 page not found\n"},
		{"GET", "/debug/pprof/", true, 404, "404 page not found\n"},
		{"GET", "/debug/pprof/profile", true, 404, "404 page not found\n"},
		{"GET", "/debug/vars", true, 404, "404 page not found\n"},
		{"POST", "/metrics", true, 405, "only GET and HEAD\n"},
		{"DELETE", "/healthz", true, 405, "only GET and HEAD\n"},
		{"OPTIONS", "/nothing", true, 405, "only GET and HEAD\n"},
	} {
		ready.Store(c.ready)
		if w := get(p, c.method, c.path); w.Code != c.code || w.Body.String() != c.body {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, w.Code, w.Body, c.code, c.body)
		} else if c.code == 405 && w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%v", w.Header())
		}
	}
	if w := get(p, "GET", "/metrics"); w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") || !strings.Contains(w.Body.String(), "tinybroker_published_messages_total 0\n") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestProfiles(t *testing.T) {
	p := newPages(t, newBroker(t, nil))
	p.Profiles = true
	if w := get(p, "GET", "/debug/pprof/"); w.Code != 200 || !strings.Contains(w.Body.String(), "goroutine") {
		t.Errorf("%d", w.Code)
	}
	if w := get(p, "GET", "/debug/pprof/heap"); w.Code != 200 || w.Body.Len() == 0 {
		t.Errorf("heap: %d", w.Code)
	}
	if w := get(p, "GET", "/debug/pprof/trace?seconds=0.01"); w.Code != 200 || w.Body.Len() == 0 {
		t.Errorf("trace: %d %s", w.Code, w.Body)
	}
	for _, seconds := range []string{"301", "-1", "0", "NaN", "1e9", "long"} {
		if w := get(p, "GET", "/debug/pprof/profile?seconds="+seconds); w.Code != http.StatusBadRequest {
			t.Errorf("%s seconds: %d", seconds, w.Code)
		}
		if w := get(p, "GET", "/debug/pprof/heap?seconds="+seconds); w.Code != http.StatusBadRequest {
			t.Errorf("a difference over %s seconds: %d", seconds, w.Code)
		}
	}
	// What the process was started with is nobody's business.
	if w := get(p, "GET", "/debug/pprof/cmdline"); w.Code != http.StatusNotFound {
		t.Errorf("cmdline: %d %s", w.Code, w.Body)
	}
}

// served serves pages on a port until the test's end.
func served(t testing.TB, p *Pages) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, l) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Error("goes on after the end")
		}
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// TestServe: strangers who say nothing, or too much, hold up neither the others nor the end.
func TestServe(t *testing.T) {
	address, stop := served(t, newPages(t, newBroker(t, nil)))
	var silent []net.Conn
	for range maxPageConnections - 1 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		silent = append(silent, conn)
	}
	ask := func(request string) string {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			t.Fatalf("%.30q: %v", request, err)
		}
		return strings.TrimSpace(line)
	}
	if got := ask("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); got != "HTTP/1.1 200 OK" {
		t.Error(got)
	}
	huge := fmt.Sprintf("GET /healthz HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
	if got := ask(huge); !strings.HasPrefix(got, "HTTP/1.1 431") {
		t.Error(got)
	}
	stop()
	for _, conn := range silent {
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a connection is left")
		}
	}
}

// TestServeMakesRoom: more connections than there may be, that say nothing, that say it slowly, or that have asked once and stay, keep nobody from being
// answered; a page that is under way is answered to its end.
func TestServeMakesRoom(t *testing.T) {
	p := newPages(t, newBroker(t, nil))
	p.Profiles = true
	address, _ := served(t, p)
	dial := func(said string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.WriteString(conn, said); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	const ask = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	answered := func(conn net.Conn) {
		t.Helper()
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	busy := bufio.NewReader(dial("GET /debug/pprof/trace?seconds=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
	if _, err := busy.ReadByte(); err != nil { // it has begun
		t.Fatal(err)
	}
	for _, said := range []string{"", "GET /healthz HTTP/1.1\r\nX: y", ask} {
		for range maxPageConnections + 10 {
			if conn := dial(said); said == ask {
				answered(conn)
			}
		}
		answered(dial(ask))
	}
	if page, err := io.ReadAll(busy); err != nil || !strings.HasSuffix(string(page), "\r\n0\r\n\r\n") {
		t.Errorf("the page under way: %d bytes, %v", len(page), err)
	}
}

// TestServeEndsDuringAProfile: a profile under way does not keep the broker from stopping.
func TestServeEndsDuringAProfile(t *testing.T) {
	p := newPages(t, newBroker(t, nil))
	p.Profiles = true
	address, stop := served(t, p)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /debug/pprof/trace?seconds=60 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // it has begun
		t.Fatal(err)
	}
	stop()
}

// TestScrapesAtOnce: many scrapers at once are told to come back.
func TestScrapesAtOnce(t *testing.T) {
	slow := &slowBroker{Broker: newBroker(t, nil), scrapes: make(chan struct{}), goOn: make(chan struct{})}
	r, err := NewRegistry(slow, idleServer{}, Build{})
	if err != nil {
		t.Fatal(err)
	}
	p := &Pages{Metrics: r}
	handler := p.Handler()
	codes := make(chan int, 2*maxScrapes)
	for range 2 * maxScrapes {
		go func() {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			codes <- w.Code
		}()
	}
	<-slow.scrapes
	for range maxScrapes {
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("one too many got %d", code)
		}
	}
	close(slow.goOn)
	for range maxScrapes {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("%d", code)
		}
	}
}

// slowBroker tells of the first scrape and holds up all.
type slowBroker struct {
	Broker
	told          atomic.Bool
	scrapes, goOn chan struct{}
}

func (b *slowBroker) Tally() core.Tally {
	if b.told.CompareAndSwap(false, true) {
		close(b.scrapes)
	}
	<-b.goOn
	return b.Broker.Tally()
}
