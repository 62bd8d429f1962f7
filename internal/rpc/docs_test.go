package rpc

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// statusNames are the codes as documents write them.
var statusNames = map[codes.Code]string{
	codes.InvalidArgument: "INVALID_ARGUMENT", codes.FailedPrecondition: "FAILED_PRECONDITION", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.Unavailable: "UNAVAILABLE", codes.NotFound: "NOT_FOUND", codes.Unauthenticated: "UNAUTHENTICATED", codes.PermissionDenied: "PERMISSION_DENIED",
}

// The page about clients has every reason with its status, every end of a subscription, and the limits that clients meet.
func TestDocumentedStatuses(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	prose := strings.Join(strings.Fields(page), " ")
	has := func(format string, args ...any) {
		t.Helper()
		if want := fmt.Sprintf(format, args...); !strings.Contains(page, want) && !strings.Contains(prose, want) {
			t.Errorf("docs/clients.md does not say %q", want)
		}
	}
	reasons := map[string]bool{}
	for _, e := range errorTable {
		reasons[e.reason] = true
		has("\n| `%s` | %s | ", e.reason, statusNames[e.code])
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| [A-Z_]+ \\|").FindAllStringSubmatch(page, -1) {
		if !reasons[m[1]] {
			t.Errorf("docs/clients.md has %s, which nobody is told", m[1])
		}
	}
	comesBack := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| (`CLOSE_REASON_[^|]+) \\| (yes|no|you)").FindAllStringSubmatch(page, -1) {
		for _, name := range regexp.MustCompile(`CLOSE_REASON_\w+`).FindAllString(m[1], -1) {
			comesBack[name] = m[2] == "yes"
		}
	}
	for value, name := range tinybrokerv1.CloseReason_name {
		if value == 0 {
			continue
		}
		again, there := comesBack[name]
		if reason := endReason(tinybrokerv1.CloseReason(value)); !there || again != reason.Resumable() {
			t.Errorf("docs/clients.md: come back after %s: %v (%v), want %v", name, again, there, reason.Resumable())
		}
	}
	has("up to %d.", maxStreams)
	has("bounded to %d KiB", maxHeaderBytes>>10)
	has("More often than every %d s is refused", int(minPingInterval.Seconds()))
	has("asks silent clients every %d s", int(pingInterval.Seconds()))
	has("`max_message_size`, %d MiB", core.DefaultOptions().MaxMessageSize>>20)
	has("that a publisher sends may have %d MiB", minFrameLimit>>20)
}

// The page about security has the rule of every method, and of no other.
func TestDocumentedRules(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	words := map[rule]string{
		anyone: "anyone", anyIdentity: "any identity", admins: "`admin`",
		publishers: "who may publish to something", subscribers: "who may receive something",
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+\\.\\w+)` \\| ([^|;,]+)").FindAllStringSubmatch(string(data), -1) {
		rows[m[1]] = strings.TrimSpace(m[2])
	}
	seen := map[string]bool{}
	for name, r := range rules {
		parts := strings.Split(name, "/")
		short := parts[1][strings.LastIndex(parts[1], ".")+1:] + "." + parts[2]
		seen[short] = true
		if rows[short] != words[r] {
			t.Errorf("docs/security.md: %s may be called by %q, want %q", short, rows[short], words[r])
		}
	}
	if len(rows) != len(seen) {
		t.Errorf("docs/security.md has rules for %d methods, there are %d", len(rows), len(seen))
	}
}
