package rpc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

const permissionIdentities = `identities:
- {name: p, token_hash: HASH:p, publish: {allow: [in.p, in.p.*.data]}}
- {name: all, token_hash: HASH:all, publish: {allow: "**"}, subscribe: {allow: ["**", "$tb.**"]}, group: {allow: "*"}, admin: true}
- {name: some, token_hash: HASH:some, subscribe: {allow: ["a.**", "$tb.dlq.mine"], deny: [a.secret]}, group: {allow: "mine*"}}
`

// publishRights is what p may publish to, and what not.
var publishRights = map[string]codes.Code{
	"in.p": codes.OK, "in.p.x.data": codes.OK,
	"in.p.x": codes.PermissionDenied, "in.p.x.y.data": codes.PermissionDenied, "in.px": codes.PermissionDenied, "in": codes.PermissionDenied,
	"IN.P": codes.PermissionDenied, "in.p.x.data.z": codes.PermissionDenied, "$tb.dlq.x": codes.InvalidArgument, "in.p.": codes.InvalidArgument,
}

func TestPublishPermissions(t *testing.T) {
	station := guarded(t, permissionIdentities)
	everything := openPatterns(t, station.stub(t, as("all")), "**")
	p := station.stub(t, as("p"))
	refused := station.broker.Stats().Refused
	for topic, want := range publishRights {
		_, err := p.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: topic, Payload: []byte("unary")})
		if status.Code(err) != want {
			t.Errorf("%s: %v, want %s", topic, err, want)
		}
		if want == codes.PermissionDenied {
			checkStatus(t, err, want, "PERMISSION_DENIED")
			if !strings.Contains(err.Error(), topic) {
				t.Errorf("%v", err)
			}
		}
		if want != codes.OK {
			refused++
		}
		if got := station.broker.Stats().Refused; got != refused {
			t.Errorf("%s: %d refused, want %d", topic, got, refused)
		}
	}

	// On a stream each message is judged by itself, allowed and denied ones by turns.
	stream, err := p.PublishStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	frame := &tinybrokerv1.PublishStreamRequest{}
	want := map[uint64]codes.Code{}
	accepted := 0
	for range 3 {
		for topic, code := range publishRights {
			frame.Messages = append(frame.Messages, &tinybrokerv1.Message{Topic: topic, Payload: []byte("stream")})
			if code != codes.OK {
				want[uint64(len(frame.Messages))] = code
				continue
			}
			accepted++
		}
	}
	if err := stream.Send(frame); err != nil {
		t.Fatal(err)
	}
	receipt, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint64]codes.Code{}
	for _, f := range receipt.GetFailures() {
		for i := range max(1, f.GetCount()) {
			got[f.GetPosition()+i] = codes.Code(f.GetCode())
		}
		if f.GetCode() == int32(codes.PermissionDenied) && (f.GetReason() != "PERMISSION_DENIED" || !strings.HasPrefix(f.GetText(), "not allowed: to publish to ")) {
			t.Errorf("%+v", f)
		}
	}
	if receipt.GetAcceptedThrough() != uint64(len(frame.Messages)) || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("accepted through %d, failures %v, want %v", receipt.GetAcceptedThrough(), got, want)
	}
	for _, m := range everything.take(t, 2+accepted) {
		if publishRights[m.GetTopic()] != codes.OK {
			t.Errorf("%s was received", m.GetTopic())
		}
	}
	if n := station.broker.Stats().Published; n != uint64(2+accepted) {
		t.Errorf("%d published", n)
	}
}

// A wide pattern brings what may be received and nothing else: broadcast, in a group, dead letters and events.
func TestSubscribePermissions(t *testing.T) {
	station := guarded(t, permissionIdentities)
	all, some := station.stub(t, as("all")), station.stub(t, as("some"))
	wide := openPatterns(t, some, "**", "$tb.**")
	member := open(t, some, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"**"}, ConsumerGroup: "mine2", AckMode: tinybrokerv1.AckMode_ACK_MODE_NONE})
	for _, topic := range []string{"b", "a.secret", "a.x", "a", "a.secret.x", "a.y.z"} {
		want := uint32(2)
		if topic == "b" || topic == "a.secret" {
			want = 0
		}
		if got := publishOne(t, all, topic, nil); got != want {
			t.Errorf("%s: %d receivers, want %d", topic, got, want)
		}
	}
	for name, s := range map[string]*stockStream{"broadcast": wide, "group": member} {
		var got []string
		for _, m := range s.take(t, 4) {
			got = append(got, m.GetTopic())
		}
		if fmt.Sprint(got) != "[a.x a a.secret.x a.y.z]" {
			t.Errorf("%s: %v", name, got)
		}
	}

	// Dead letters: whoever may read $tb.dlq.mine gets those of group mine, and no others.
	workers := map[string]*stockStream{}
	for _, group := range []string{"other", "mine"} {
		workers[group] = open(t, all, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"dead"}, ConsumerGroup: group})
	}
	letters := openPatterns(t, all, "$tb.dlq.*")
	publishOne(t, all, "dead", nil)
	for _, w := range workers {
		w.take(t, 1)
		if err := w.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Nack{Nack: &tinybrokerv1.Nack{
			Action: tinybrokerv1.NackAction_NACK_ACTION_REJECT, Ranges: []*tinybrokerv1.SequenceRange{{First: 1}},
		}}}); err != nil {
			t.Fatal(err)
		}
	}
	letters.take(t, 2)
	publishOne(t, all, "a.last", nil)
	for i, m := range wide.take(t, 2) {
		if want := []string{"$tb.dlq.mine", "a.last"}[i]; m.GetTopic() != want {
			t.Errorf("received %s, want %s", m.GetTopic(), want)
		}
	}
}

// What cannot bring anything is refused, and so is a group that is not for one.
func TestRefusedSubscriptions(t *testing.T) {
	station := guarded(t, permissionIdentities)
	some := station.stub(t, as("some"))
	for _, test := range []struct {
		name string
		open *tinybrokerv1.OpenSubscription
	}{
		{"a topic that is denied", &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a.secret"}}},
		{"a topic that is not allowed", &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"b", "c"}}},
		{"another's dead letters", &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"$tb.dlq.other"}}},
		{"another's group", &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a.**"}, ConsumerGroup: "other"}},
		{"a group whose name begins alike", &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a.**"}, ConsumerGroup: "min"}},
		{"a topic in a group", &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a.secret"}, ConsumerGroup: "mine"}},
	} {
		_, err := tryOpen(within(t, 5*time.Second), some, test.open)
		checkStatus(t, err, codes.PermissionDenied, "PERMISSION_DENIED")
		if t.Failed() {
			t.Fatal(test.name)
		}
	}
	// A live id is its owner's.
	mine := open(t, station.stub(t, as("all")), &tinybrokerv1.OpenSubscription{SubscriptionId: "id", TopicPatterns: []string{"x"}})
	_, err := tryOpen(within(t, 5*time.Second), some, &tinybrokerv1.OpenSubscription{SubscriptionId: "id", TopicPatterns: []string{"a.x"}})
	checkStatus(t, err, codes.PermissionDenied, "PERMISSION_DENIED")
	publishOne(t, station.stub(t, as("all")), "x", nil)
	mine.take(t, 1)
	if n := station.broker.Stats().Subscriptions; n != 1 {
		t.Errorf("%d subscriptions", n)
	}
}

// Permissions are asked about a topic when it is first published to, not about each message.
func BenchmarkPublishWithPermissions(b *testing.B) {
	for name, text := range map[string]string{
		"open":    "",
		"guarded": "identities:\n- {name: all, token_hash: HASH:all, publish: {allow: [\"bench.**\", \"{a,b,c}.**\"], deny: [\"**.secret\"]}}\n",
	} {
		b.Run(name, func(b *testing.B) {
			station := newStation(b, func(_ *core.Options, o *ServerOptions) {
				if text != "" {
					o.Identities = identitiesOf(b, text)
				}
			})
			stub := station.stub(b, as("all"))
			b.Run("unary", func(b *testing.B) {
				for b.Loop() {
					publishOne(b, stub, "bench.x", nil)
				}
			})
			b.Run("stream", func(b *testing.B) {
				stream, err := stub.PublishStream(b.Context(), grpc.WaitForReady(true))
				if err != nil {
					b.Fatal(err)
				}
				frame := &tinybrokerv1.PublishStreamRequest{}
				for i := range 100 {
					frame.Messages = append(frame.Messages, &tinybrokerv1.Message{Topic: fmt.Sprint("bench.", i)})
				}
				for b.Loop() {
					if err := stream.Send(frame); err != nil {
						b.Fatal(err)
					}
					if _, err := stream.Recv(); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
