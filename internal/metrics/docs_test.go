package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"
)

func readDoc(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile("../../docs/" + path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// rows returns the cells of all tables of a page, without the marks of code.
func rows(t *testing.T, path string) (all [][]string) {
	t.Helper()
	for line := range strings.Lines(string(readDoc(t, path))) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			cells = append(cells, strings.ReplaceAll(strings.TrimSpace(cell), "`", ""))
		}
		all = append(all, cells)
	}
	return all
}

func isOurs(name string) bool {
	return strings.HasPrefix(name, namespace) || strings.HasPrefix(name, "grpc_")
}

func labelNames(f *dto.MetricFamily) (names []string) {
	for _, l := range f.GetMetric()[0].GetLabel() {
		names = append(names, l.GetName())
	}
	slices.Sort(names)
	return names
}

// TestDocumentedMetrics: the page lists what there is, with its type and labels, and nothing else; and every reason.
func TestDocumentedMetrics(t *testing.T) {
	families, _ := scrape(t, newPages(t, newBroker(t, nil)))
	listed, reasons := map[string]bool{}, map[string][]string{}
	for _, cells := range rows(t, "observability.md") {
		if !isOurs(cells[0]) {
			continue
		}
		f := families[cells[0]]
		if f == nil {
			t.Errorf("%s does not exist", cells[0])
			continue
		}
		if len(cells) == 3 {
			reasons[cells[0]] = append(reasons[cells[0]], cells[1])
			continue
		}
		listed[cells[0]] = true
		labels := strings.Fields(cells[2])
		slices.Sort(labels)
		if kind := strings.ToLower(f.GetType().String()); kind != cells[1] || !slices.Equal(labels, labelNames(f)) || len(cells[3]) < 10 {
			t.Errorf("%s is a %s with labels %q", cells[0], kind, labelNames(f))
		}
	}
	for name := range families {
		if isOurs(name) && !listed[name] {
			t.Errorf("%s is not listed", name)
		}
	}
	ended := valuesOf(families["tinybroker_subscriptions_ended_total"], "reason")
	reasons["tinybroker_dropped_messages_total"] = append(reasons["tinybroker_dropped_messages_total"], ended...)
	for name, documented := range reasons {
		slices.Sort(documented)
		if got := valuesOf(families[name], "reason"); !slices.Equal(got, documented) {
			t.Errorf("%s: reasons %q, listed are %q", name, got, documented)
		}
	}
	page := string(readDoc(t, "observability.md"))
	for _, reason := range ended {
		if !strings.Contains(page, "`"+reason+"`") {
			t.Errorf("the page does not say what %s is", reason)
		}
	}
}

func valuesOf(f *dto.MetricFamily, label string) (values []string) {
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && !slices.Contains(values, l.GetValue()) {
				values = append(values, l.GetValue())
			}
		}
	}
	slices.Sort(values)
	return values
}

var (
	metricName = regexp.MustCompile(`\b(?:tinybroker|grpc_server|go|process)_[a-z0-9_]+\b`)
	selector   = regexp.MustCompile(`\b([a-z0-9_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)(?:=~|!=|!~|=)"([^"]*)"`)
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring) ?\(([^)]*)\)`)
)

// checkExpr checks a query's names of metrics, labels and values against what there is.
func checkExpr(t *testing.T, where, expr string, families map[string]*dto.MetricFamily) {
	t.Helper()
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(expr, pair[:1]) != strings.Count(expr, pair[1:]) {
			t.Errorf("%s: %s: brackets do not match", where, expr)
		}
	}
	known := []string{"job", "instance", "le"}
	family := func(name string) *dto.MetricFamily {
		if f := families[strings.TrimSuffix(name, "_bucket")]; f != nil && (f.GetType() == dto.MetricType_HISTOGRAM) == strings.HasSuffix(name, "_bucket") {
			return f
		}
		return nil
	}
	bare := selector.ReplaceAllString(grouping.ReplaceAllString(expr, ""), "$1")
	names := metricName.FindAllString(bare, -1)
	if len(names) == 0 && !strings.HasPrefix(expr, "up{") {
		t.Errorf("%s: %s: asks for nothing of ours", where, expr)
	}
	for _, name := range names {
		f := family(name)
		if f == nil {
			t.Errorf("%s: no metric %s", where, name)
			continue
		}
		known = append(known, labelNames(f)...)
		counts := f.GetType() == dto.MetricType_COUNTER || f.GetType() == dto.MetricType_HISTOGRAM
		if ranged := regexp.MustCompile(`(rate|increase)\(` + name + `\b`).MatchString(bare); ranged != counts {
			t.Errorf("%s: %s: %s is a %s", where, expr, name, f.GetType())
		}
	}
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		f := family(m[1])
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(known, l[1]) {
				t.Errorf("%s: %s: no label %s", where, expr, l[1])
			}
			if l[1] == "reason" || l[1] == "group" || l[1] == "mode" {
				for value := range strings.SplitSeq(l[2], "|") {
					if all := append(valuesOf(f, l[1]), otherGroups); !slices.Contains(all, value) {
						t.Errorf("%s: %s: no %s %q", where, expr, l[1], value)
					}
				}
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(m[1], ",") {
			if label = strings.TrimSpace(label); !slices.Contains(known, label) {
				t.Errorf("%s: %s: no label %s", where, expr, label)
			}
		}
	}
}

// TestAlertRules: the rules are what Prometheus reads, and ask for what there is.
func TestAlertRules(t *testing.T) {
	families, _ := scrape(t, newPages(t, newBroker(t, nil)))
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(readDoc(t, "prometheus/tinybroker.rules.yaml"))))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if seen[r.Alert] || !strings.HasPrefix(r.Alert, "Tinybroker") || r.Annotations["summary"] == "" || !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
				t.Errorf("%+v", r)
			}
			seen[r.Alert] = true
			checkExpr(t, r.Alert, r.Expr, families)
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %d rules", len(seen))
	}
	var config struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName string `yaml:"job_name"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(readDoc(t, "prometheus/prometheus.yaml"), &config); err != nil {
		t.Fatal(err)
	}
	if len(config.RuleFiles) != 1 || len(config.ScrapeConfigs) != 1 || config.ScrapeConfigs[0].JobName != "tinybroker" {
		t.Errorf("%+v", config)
	}
	readDoc(t, "prometheus/"+config.RuleFiles[0])
}

// TestDashboard: the dashboard has the parts that Grafana wants, its panels lie side by side, and it asks for what there is.
func TestDashboard(t *testing.T) {
	families, _ := scrape(t, newPages(t, newBroker(t, nil)))
	var d struct {
		UID, Title    string
		SchemaVersion int
		Templating    struct{ List []struct{ Name, Type string } }
		Panels        []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Datasource  struct{ Type, UID string }
			FieldConfig *struct{ Defaults struct{ Unit string } }
			Targets     []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal(readDoc(t, "grafana/tinybroker.json"), &d); err != nil {
		t.Fatal(err)
	}
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	if d.UID == "" || d.Title == "" || d.SchemaVersion < 36 || !variables["datasource"] || !variables["instance"] || !variables["job"] {
		t.Errorf("%q %q %d %v", d.UID, d.Title, d.SchemaVersion, variables)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	shown := map[string]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("panel %d %q", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: %+v", p.Title, p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies on %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if !slices.Contains([]string{"timeseries", "stat"}, p.Type) || p.Datasource.UID != "${datasource}" || p.FieldConfig == nil || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("%s: %+v", p.Title, p)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] || target.RefID == "" {
				t.Errorf("%s: %q twice", p.Title, target.RefID)
			}
			refs[target.RefID] = true
			for _, m := range regexp.MustCompile(`\$([a-z_]+)`).FindAllStringSubmatch(target.Expr, -1) {
				if !variables[m[1]] {
					t.Errorf("%s: no variable %s", p.Title, m[1])
				}
			}
			checkExpr(t, p.Title, target.Expr, families)
			for _, name := range metricName.FindAllString(target.Expr, -1) {
				shown[strings.TrimSuffix(name, "_bucket")] = true
			}
		}
	}
	for name := range maps.Keys(families) {
		about := strings.HasSuffix(name, "_info") || strings.HasSuffix(name, "start_time_seconds")
		hardly := []string{"tinybroker_groups", "tinybroker_topics", "tinybroker_matched_messages_total", "tinybroker_group_matched_messages_total"}
		if strings.HasPrefix(name, namespace) && !about && !slices.Contains(hardly, name) && !shown[name] {
			t.Errorf("%s is on no panel", name)
		}
	}
}
