package metrics

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// idleServer is a server that nobody calls, with one method.
type idleServer struct{}

func (idleServer) Connections() int        { return 3 }
func (idleServer) ConnectionLimit() int    { return 10 }
func (idleServer) ConnectionsWaiting() int { return 1 }

func (idleServer) VisitCalls(started func(kind, service, method string, n uint64), handled func(kind, service, method, code string, n uint64)) {
	started("unary", "a.Service", "Method", 2)
	handled("unary", "a.Service", "Method", "OK", 1)
}

func newBroker(t testing.TB, change func(*core.Options)) *core.Broker {
	t.Helper()
	o := core.DefaultOptions()
	o.Encoding = rpc.Encoding{}
	if change != nil {
		change(&o)
	}
	b, err := core.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func newPages(t testing.TB, b *core.Broker) *Pages {
	t.Helper()
	r, err := NewRegistry(b, idleServer{}, Build{Version: "v1.2.3", GoVersion: "go1.99"})
	if err != nil {
		t.Fatal(err)
	}
	return &Pages{Metrics: r, Ready: func() bool { return true }}
}

// scrape gets /metrics as Prometheus would.
func scrape(t testing.TB, p *Pages) (families map[string]*dto.MetricFamily, size int) {
	t.Helper()
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	size = w.Body.Len()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return families, size
}

func series(families map[string]*dto.MetricFamily) (n int) {
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n
}

// TestMetricNames: these are the metrics, of these types and with these labels, and each has all its series before anything happens.
func TestMetricNames(t *testing.T) {
	families, _ := scrape(t, newPages(t, newBroker(t, nil)))
	want := map[string]string{
		"published_messages_total":     "counter",
		"published_bytes_total":        "counter",
		"refused_messages_total":       "counter reason=canceled,draining,group_full,invalid,memory,not_allowed",
		"unrouted_messages_total":      "counter",
		"matched_messages_total":       "counter mode=broadcast,group",
		"delivered_messages_total":     "counter mode=broadcast,group",
		"delivered_bytes_total":        "counter",
		"acked_messages_total":         "counter",
		"redelivered_messages_total":   "counter group=_gone,_other",
		"dead_letters_total":           "counter group=_gone,_other",
		"dropped_messages_total":       "counter reason=closed,drop_newest,drop_oldest,evicted,group_expired,kicked,left,memory,refused,replaced,revoked,shutting_down,stalled",
		"evictions_total":              "counter reason=memory,queue_full,stalled",
		"subscriptions_opened_total":   "counter",
		"subscriptions_ended_total":    "counter reason=closed,evicted,kicked,left,replaced,revoked,shutting_down,stalled",
		"group_matched_messages_total": "counter group=_gone,_other",
		"group_acked_messages_total":   "counter group=_gone,_other",
		"group_dropped_messages_total": "counter group=_gone,_other",
		"delivery_latency_seconds":     "histogram",
		"subscriptions":                "gauge",
		"groups":                       "gauge",
		"topics":                       "gauge",
		"connections":                  "gauge",
		"connections_limit":            "gauge",
		"connections_waiting":          "gauge",
		"queued_messages":              "gauge",
		"queued_bytes":                 "gauge",
		"memory_limit_bytes":           "gauge",
		"start_time_seconds":           "gauge",
		"group_pending":                "gauge group=_other",
		"group_in_flight":              "gauge group=_other",
		"group_members":                "gauge group=_other",
		"build_info":                   "gauge go_version=go1.99 version=v1.2.3",
	}
	for name, f := range families {
		short, ours := strings.CutPrefix(name, namespace)
		if !ours {
			continue
		}
		if got := describe(f); got != want[short] {
			t.Errorf("%s: %q, want %q", short, got, want[short])
		}
		if f.GetHelp() == "" {
			t.Errorf("%s: no help", short)
		}
		delete(want, short)
	}
	for name := range want {
		t.Errorf("no %s", name)
	}
	for name, kind := range map[string]string{
		"grpc_server_started_total": "counter grpc_method=Method grpc_service=a.Service grpc_type=unary",
		"grpc_server_handled_total": "counter grpc_code=OK grpc_method=Method grpc_service=a.Service grpc_type=unary",
		"go_goroutines":             "gauge", "process_open_fds": "gauge", "process_resident_memory_bytes": "gauge",
	} {
		if got := describe(families[name]); got != kind {
			t.Errorf("%s: %q, want %q", name, got, kind)
		}
	}
	if help := families["tinybroker_delivery_latency_seconds"].GetHelp(); !strings.Contains(help, "Sampled by frame") {
		t.Errorf("%q", help)
	}
}

// describe returns the type of a metric and its labels with all their values.
func describe(f *dto.MetricFamily) string {
	values := map[string][]string{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if !slices.Contains(values[l.GetName()], l.GetValue()) {
				values[l.GetName()] = append(values[l.GetName()], l.GetValue())
			}
		}
	}
	text := strings.ToLower(f.GetType().String())
	for _, name := range slices.Sorted(maps.Keys(values)) {
		slices.Sort(values[name])
		text += " " + name + "=" + strings.Join(values[name], ",")
	}
	return text
}

func publish(t testing.TB, b *core.Broker, topic string) {
	t.Helper()
	record := rpc.Encoding{}.Append(nil, &core.Message{Topic: topic, Payload: []byte("x")})
	batch := &core.Batch{Data: record, Runs: []core.Run{{Topic: []byte(topic), End: len(record), Count: 1}}}
	if err := b.Publish(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
}

// TestMetricsStaySmallAndForget: thousands of topics, clients, groups and patterns come and go. There are never more series than the
// documented bound, the totals are right, and afterwards hardly any are left.
func TestMetricsStaySmallAndForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t, nil)
		p := newPages(t, b)
		families, _ := scrape(t, p)
		atFirst := series(families)
		var subs []*core.Subscription
		var members []*core.Member
		for i := range 1000 {
			s, err := b.Subscribe(core.SubscribeOptions{Patterns: []string{fmt.Sprintf("topic.%d*", i)}, Client: fmt.Sprint("client-", i)})
			if err != nil {
				t.Fatal(err)
			}
			m, err := b.Join(core.JoinOptions{Group: fmt.Sprint("group-", i, strings.Repeat("-long", 20)), Patterns: []string{fmt.Sprintf("topic.%d", i)}})
			if err != nil {
				t.Fatal(err)
			}
			subs, members = append(subs, s), append(members, m)
		}
		for i := range 10_000 {
			publish(t, b, fmt.Sprintf("topic.%d", i))
		}
		begun := time.Now()
		families, size := scrape(t, p)
		t.Logf("%d series at first, %d under load, %d bytes", atFirst, series(families), size)
		if n := series(families); n > atFirst+8*maxNamed {
			t.Errorf("%d series", n)
		}
		if size > 1<<20 {
			t.Errorf("%d bytes", size)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("a scrape waits for something: %s", took)
		}
		total := func(name string) (n float64) {
			for _, m := range families[namespace+name].GetMetric() {
				n += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			return n
		}
		if total("published_messages_total") != 10_000 || total("group_matched_messages_total") != 1000 || total("group_pending") != 1000 || total("groups") != 1000 || total("group_members") != 1000 {
			t.Error("the totals are wrong")
		}
		for i := range subs {
			subs[i].Close()
			members[i].Close()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		families, _ = scrape(t, p)
		if n := series(families); n > atFirst+atFirst/20 {
			t.Errorf("%d series are left of %d", n, atFirst)
		}
		if total("group_matched_messages_total") != 1000 || total("group_dropped_messages_total") != 1000 || total("groups") != 0 || total("group_pending") != 0 {
			t.Error("the totals are wrong afterwards")
		}
	})
}

// TestOddGroupNames: whatever a group may be called, the page can be parsed, and shows it.
func TestOddGroupNames(t *testing.T) {
	b := newBroker(t, nil)
	p := newPages(t, b)
	names := []string{`"quoted"`, "🦀", `a="b"`, "_other", "_gone", "\u202e", strings.Repeat("ü", 64), "#HELP", "$x"}
	for _, name := range names {
		m, err := b.Join(core.JoinOptions{Group: name, Patterns: []string{"x"}})
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		t.Cleanup(m.Close)
	}
	for _, name := range []string{"\xff\xfe", "\xe2\x82", "a\x00b", "a\nb", "\xed\xa0\x80", `back\slash`, `{a="b"}`} {
		if m, err := b.Join(core.JoinOptions{Group: name, Patterns: []string{"x"}}); err == nil {
			m.Close()
			t.Errorf("%q is a group", name)
		}
	}
	publish(t, b, "x")
	families, _ := scrape(t, p)
	var shown []string
	for _, m := range families["tinybroker_group_pending"].GetMetric() {
		shown = append(shown, m.GetLabel()[0].GetValue())
		if want := 1.0; m.GetGauge().GetValue() != want && m.GetLabel()[0].GetValue() != otherGroups {
			t.Errorf("%v", m)
		}
	}
	slices.Sort(shown)
	want := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == goneGroups })
	slices.Sort(want)
	if !slices.Equal(shown, want) {
		t.Errorf("%q", shown)
	}
}

// brokenBroker has a defect.
type brokenBroker struct{ Broker }

func (brokenBroker) Tally() core.Tally {
	return core.Tally{Dropped: []core.Count{{Reason: "\xff", N: 1}}}
}

// TestADefectIsNotFatal: a label that is no text, which must not come to be, costs the page, not the process.
func TestADefectIsNotFatal(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(newBrokerCollector(brokenBroker{newBroker(t, nil)}, idleServer{}, Build{}))
	p := &Pages{Metrics: r}
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

func BenchmarkScrape(b *testing.B) {
	broker := newBroker(b, nil)
	for i := range 1000 {
		for j := range 10 {
			s, err := broker.Subscribe(core.SubscribeOptions{Patterns: []string{fmt.Sprintf("topic.%d.%d", i, j)}})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(s.Close)
		}
		m, err := broker.Join(core.JoinOptions{Group: fmt.Sprint("group-", i), Patterns: []string{"x"}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(m.Close)
	}
	p := newPages(b, broker)
	for b.Loop() {
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
}
