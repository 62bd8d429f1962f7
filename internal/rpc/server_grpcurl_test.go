package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// grpcurlPath finds grpcurl on the PATH or where TINYBROKER_GRPCURL says. Without it the test is skipped, unless
// TINYBROKER_REQUIRE_TOOLS is set.
func grpcurlPath(t testing.TB) string {
	t.Helper()
	name := os.Getenv("TINYBROKER_GRPCURL")
	if name == "" {
		name = "grpcurl"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("TINYBROKER_REQUIRE_TOOLS") != "" {
		t.Fatalf("grpcurl is required: %v", err)
	}
	t.Skip("grpcurl is not there")
	return ""
}

// grpcurl runs it to its end.
func grpcurl(t testing.TB, station *station, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), grpcurlPath(t), append([]string{"-plaintext"}, args...)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

func TestGrpcurl(t *testing.T) {
	station := newStation(t, nil)
	out, errOut, err := grpcurl(t, station, station.addr, "list")
	want := []string{
		"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
		"tinybroker.v1.AdminService", "tinybroker.v1.BrokerService",
	}
	if err != nil || !slices.Equal(strings.Fields(out), want) {
		t.Errorf("list: %v\n%s%s", err, out, errOut)
	}
	out, errOut, err = grpcurl(t, station, station.addr, "describe", "tinybroker.v1.BrokerService")
	if err != nil || !strings.Contains(out, "rpc Publish ( .tinybroker.v1.PublishRequest ) returns ( .tinybroker.v1.PublishResponse );") {
		t.Errorf("describe: %v\n%s%s", err, out, errOut)
	}
	out, errOut, err = grpcurl(t, station, "-d", `{"topic":"a.b","payload":"aGVsbG8="}`, station.addr, "tinybroker.v1.BrokerService/Publish")
	if err != nil || strings.TrimSpace(out) != "{}" { // 0 receivers
		t.Errorf("publish: %v\n%s%s", err, out, errOut)
	}
	_, errOut, err = grpcurl(t, station, "-d", `{"topic":"a b"}`, station.addr, "tinybroker.v1.BrokerService/Publish")
	if err == nil || !strings.Contains(errOut, "InvalidArgument") || !strings.Contains(errOut, "TOPIC_INVALID") {
		t.Errorf("publish to a bad topic: %v\n%s", err, errOut)
	}
	out, errOut, err = grpcurl(t, station, station.addr, "grpc.health.v1.Health/Check")
	if err != nil || !strings.Contains(out, "SERVING") {
		t.Errorf("health: %v\n%s%s", err, out, errOut)
	}
	out, errOut, err = grpcurl(t, station, "-max-time", "1", "-d", `{"interval":"0.25s"}`, station.addr, "tinybroker.v1.AdminService/Watch")
	if err == nil || !strings.Contains(errOut, "DeadlineExceeded") || strings.Count(out, `"broker"`) < 2 {
		t.Errorf("watch: %v\n%s%s", err, out, errOut)
	}
}

// TestGrpcurlSubscribes: it sends one request, half-closes, and prints what comes.
func TestGrpcurlSubscribes(t *testing.T) {
	station := newStation(t, nil)
	cmd := exec.CommandContext(t.Context(), grpcurlPath(t), "-plaintext", "-max-time", "2", "-d", "@", station.addr, "tinybroker.v1.BrokerService/Subscribe")
	cmd.Stdin = strings.NewReader(`{"open":{"topic_patterns":["a.*"],"subscription_id":"curl"}}`)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	type response struct {
		Opened   *struct{ SubscriptionID string }
		Messages []struct {
			Topic   string
			Payload []byte
		}
	}
	frames := json.NewDecoder(stdout)
	var first response
	if err := frames.Decode(&first); err != nil || first.Opened == nil || first.Opened.SubscriptionID != "curl" {
		t.Fatalf("first frame %+v: %v\n%s", first, err, errOut.String())
	}
	stub := station.stub(t)
	for i := range 10 {
		publishOne(t, stub, "a.b", []byte{byte(i)})
	}
	var got []byte
	for {
		var r response
		if err := frames.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, m := range r.Messages {
			got = append(got, m.Payload...)
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(errOut.String(), "DeadlineExceeded") {
		t.Errorf("ended with %v\n%s", err, errOut.String())
	}
	if !slices.Equal(got, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("received %v", got)
	}
	if d := time.Since(begun); d < 1500*time.Millisecond {
		t.Errorf("it ended by itself after %s", d)
	}
	eventually(t, "the subscription is gone", func() bool { return station.broker.Stats().Subscriptions == 0 })
}
