package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestDeadLettersForStockClients: every one can be decoded, whatever the message and the reason were.
func TestDeadLettersForStockClients(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	letters := openPatterns(t, stub, "$tb.dlq.*")
	m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{ConsumerGroup: "grüße"})
	sent := timestamppb.New(time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC))
	long := strings.Repeat("é", 400) // 800 bytes, and 512 would cut one in two if it were the odd half
	for _, test := range []struct {
		name    string
		message *tinybrokerv1.PublishRequest
		reason  string
		want    string
	}{
		{"all fields", &tinybrokerv1.PublishRequest{
			Topic: "größe.ü", Payload: []byte{0, 255, 1}, Headers: map[string]string{"h": "v", "": ""}, Key: "k", PublishTime: sent,
		}, "no such order", "rejected: no such order"},
		{"nothing but a topic", &tinybrokerv1.PublishRequest{Topic: "a"}, "", "rejected"},
		{"a long reason", &tinybrokerv1.PublishRequest{Topic: "a"}, "x" + long, "rejected: x" + strings.Repeat("é", 255)},
		{"a reason with line feeds", &tinybrokerv1.PublishRequest{Topic: "a"}, "a\nb\x00", "rejected: a\nb\x00"},
		{"headers that are ours", &tinybrokerv1.PublishRequest{Topic: "a", Headers: map[string]string{core.HeaderTopic: "forged"}}, "r", "rejected: r"},
		{"as large as can be", &tinybrokerv1.PublishRequest{Topic: "a", Payload: make([]byte, 1<<20-1)}, "r", "rejected: r"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := stub.Publish(t.Context(), test.message); err != nil {
				t.Fatal(err)
			}
			d := m.take(t, 1)[0]
			m.nack(t, &tinybrokerv1.Nack{Ranges: span(d.sequence, 0), Action: reject, Reason: test.reason})
			letter := letters.take(t, 1)[0]
			headers := map[string]string{}
			maps.Copy(headers, test.message.GetHeaders())
			headers[core.HeaderTopic] = test.message.GetTopic()
			headers[core.HeaderGroup] = "grüße"
			headers[core.HeaderAttempts] = "1"
			headers[core.HeaderReason] = test.want
			if !maps.Equal(letter.GetHeaders(), headers) {
				t.Errorf("headers %q, want %q", letter.GetHeaders(), headers)
			}
			for k, v := range letter.GetHeaders() {
				if !utf8.ValidString(k) || !utf8.ValidString(v) {
					t.Errorf("header %q: %q is not text", k, v)
				}
			}
			if letter.GetTopic() != "$tb.dlq.grüße" || !bytes.Equal(letter.GetPayload(), test.message.GetPayload()) ||
				letter.GetKey() != test.message.GetKey() || !letter.GetPublishTime().AsTime().Equal(test.message.GetPublishTime().AsTime()) {
				t.Errorf("dead letter on %q with %d bytes, key %q, %v", letter.GetTopic(), len(letter.GetPayload()), letter.GetKey(), letter.GetPublishTime())
			}
		})
	}
}

// TestDeadLettersOfAGroup: dead letters are messages; a group can share them, and what dies there does not loop.
func TestDeadLettersOfAGroup(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	undertaker := joinStock(t, stub, &tinybrokerv1.OpenSubscription{ConsumerGroup: "undertakers", TopicPatterns: []string{"$tb.dlq.**"}})
	m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{})
	publishCounted(t, stub, "a", 0, 3)
	m.take(t, 3)
	m.nack(t, &tinybrokerv1.Nack{Ranges: span(1, 3), Action: reject})
	wantPayloads(t, undertaker.take(t, 3), "0/1", "1/1", "2/1")
	undertaker.ack(t, 1, 1)
	undertaker.nack(t, &tinybrokerv1.Nack{Ranges: span(2, 3), Action: reject})
	eventually(t, "two died for good", func() bool {
		st := groupBooks(t, station.broker, "undertakers")
		return st.DeadLetters == 2 && st.Acked == 1
	})
	undertaker.wantSilence(t, 20*time.Millisecond)
	if st := station.broker.Stats(); st.DeadLetters != 5 || st.Memory != 0 {
		t.Errorf("%d dead letters, %d bytes held", st.DeadLetters, st.Memory)
	}
}

// TestGroupEvents are JSON, in the order of what happened.
func TestGroupEvents(t *testing.T) {
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.GroupLinger = 20 * time.Millisecond })
	stub := station.stub(t)
	events := openPatterns(t, stub, "$tb.event.**")
	hidden := openPatterns(t, stub, "**")
	m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "w1", ClientName: "worker \"1\"", TopicPatterns: []string{"a.*", "!a.b"}})
	publishOne(t, stub, "a.c", []byte("x"))
	m.take(t, 1)
	m.nack(t, &tinybrokerv1.Nack{Ranges: span(1, 1), Action: reject, Reason: "bad"})
	station.wantGroup(t, 0, 0, 0)
	m.leave(t)
	m.end(t)
	type fields = map[string]any
	expected := []struct {
		topic  string
		fields fields
	}{
		{"subscription.opened", nil}, // events itself
		{"subscription.opened", nil}, // hidden
		{"group.created", fields{"group": "g"}},
		{"subscription.opened", fields{"subscription": "w1", "client": `worker "1"`, "group": "g", "patterns": []any{"a.*", "!a.b"}}},
		{"deadletter", fields{"group": "g", "topic": "a.c", "attempts": 1.0, "reason": "rejected: bad"}},
		{"subscription.closed", fields{"subscription": "w1", "client": `worker "1"`, "group": "g", "reason": "left", "lost": 0.0}},
		{"group.expired", fields{"group": "g"}},
	}
	for i, event := range events.take(t, len(expected)) {
		want := expected[i]
		var got fields
		if err := json.Unmarshal(event.GetPayload(), &got); err != nil {
			t.Fatalf("event %s: %q: %v", event.GetTopic(), event.GetPayload(), err)
		}
		if event.GetTopic() != "$tb.event."+want.topic || event.GetPublishTime() == nil {
			t.Errorf("event %s, want %s", event.GetTopic(), want.topic)
		}
		for name, value := range want.fields {
			if fmt.Sprint(got[name]) != fmt.Sprint(value) {
				t.Errorf("%s: %s is %v, want %v", want.topic, name, got[name], value)
			}
		}
	}
	if got := hidden.take(t, 1)[0]; got.GetTopic() != "a.c" {
		t.Errorf("** shows %s", got.GetTopic())
	}
	publishOne(t, stub, "last", nil)
	if got := hidden.take(t, 1)[0]; got.GetTopic() != "last" {
		t.Errorf("** shows %s", got.GetTopic())
	}
}

// TestEmptyMessages are messages: everywhere they arrive once, with no payload and their headers.
func TestEmptyMessages(t *testing.T) {
	station := newStation(t, nil)
	stub := station.stub(t)
	broadcast := openPatterns(t, stub, "a")
	letters := openPatterns(t, stub, "$tb.dlq.g")
	m := joinStock(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a"}, MaxAttempts: 2})
	headers := map[string]string{"h": ""}
	messages := []*tinybrokerv1.PublishRequest{
		{Topic: "a"}, {Topic: "a", Payload: []byte{}}, {Topic: "a", Headers: headers}, {Topic: "a", Payload: []byte{}, Headers: headers},
	}
	for _, message := range messages {
		if r, err := stub.Publish(t.Context(), message); err != nil || r.GetReceivers() != 2 {
			t.Fatalf("%v, %v", r, err)
		}
	}
	check := func(where string, i int, got *tinybrokerv1.Message, extra int) {
		if len(got.GetPayload()) != 0 || len(got.GetHeaders()) != i/2+extra {
			t.Errorf("%s: message %d has %d bytes and headers %v", where, i, len(got.GetPayload()), got.GetHeaders())
		}
	}
	for i, got := range broadcast.take(t, 4) {
		check("broadcast", i, got, 0)
	}
	for attempt := range uint32(2) {
		for i, got := range m.take(t, 4) {
			check("group", i, got.Message, 0)
			if got.attempt != attempt+1 {
				t.Errorf("attempt %d, want %d", got.attempt, attempt+1)
			}
			m.nack(t, &tinybrokerv1.Nack{Ranges: span(got.sequence, 0), Delay: durationpb.New(0)})
			if attempt == 0 && i == 3 {
				break
			}
		}
	}
	for i, got := range letters.take(t, 4) {
		check("dead letter", i, got, 4)
	}
	if st := station.wantGroup(t, 0, 0, 0); st.DeadLetters != 4 || st.Accepted != 4 {
		t.Errorf("%+v", st)
	}
}
