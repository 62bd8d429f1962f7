package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	reflectiongrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

const stayingIdentity = `- {name: staying, token_hash: HASH:staying, publish: {allow: "**"}, subscribe: {allow: "**"}, group: {allow: "*"}, admin: true}
`

// endings are how the open streams of one identity end. An empty channel: it goes on.
type endings struct {
	subscription, member, idle, publisher, watch, health, reflection chan error

	closed map[string]chan *tinybrokerv1.Closed // what the last frame has said
}

func receiveUntilError[T any](receive func() (T, error), each func(T)) chan error {
	ended := make(chan error, 1)
	go func() {
		for {
			m, err := receive()
			if err != nil {
				ended <- err
				return
			}
			if each != nil {
				each(m)
			}
		}
	}()
	return ended
}

// openAll opens a stream of each kind.
func openAll(t *testing.T, s *station, token string) *endings {
	t.Helper()
	conn := s.dial(t, as(token))
	stub := tinybrokerv1.NewBrokerServiceClient(conn)
	e := &endings{closed: map[string]chan *tinybrokerv1.Closed{"subscription": make(chan *tinybrokerv1.Closed, 1), "member": make(chan *tinybrokerv1.Closed, 1)}}
	last := func(kind string) func(*tinybrokerv1.SubscribeResponse) {
		return func(r *tinybrokerv1.SubscribeResponse) {
			if c := r.GetClosed(); c != nil {
				e.closed[kind] <- c
			}
		}
	}
	e.subscription = receiveUntilError(openPatterns(t, stub, "a.**").Recv, last("subscription"))
	e.member = receiveUntilError(open(t, stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"a.**"}, ConsumerGroup: "g"}).Recv, last("member"))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	idle, err := stub.Subscribe(ctx) // says nothing
	if err != nil {
		t.Fatal(err)
	}
	e.idle = receiveUntilError(idle.Recv, nil)
	publisher, err := stub.PublishStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sendFrame(t, publisher, &tinybrokerv1.Message{Topic: "a.x"})
	if _, err := publisher.Recv(); err != nil {
		t.Fatal(err)
	}
	e.publisher = receiveUntilError(publisher.Recv, nil)
	watch, err := tinybrokerv1.NewAdminServiceClient(conn).Watch(ctx, &tinybrokerv1.WatchRequest{Interval: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	e.watch = receiveUntilError(watch.Recv, nil)
	health, err := healthgrpc.NewHealthClient(conn).Watch(ctx, &healthgrpc.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := health.Recv(); err != nil {
		t.Fatal(err)
	}
	e.health = receiveUntilError(health.Recv, nil)
	reflection, err := reflectiongrpc.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	e.reflection = receiveUntilError(reflection.Recv, nil)
	eventually(t, "all streams are open", func() bool { return sessionsOf(s) >= 7 })
	return e
}

// wantEndings checks how each stream has ended; codes.OK: it goes on.
func wantEndings(t *testing.T, e *endings, want map[string]codes.Code) {
	t.Helper()
	timeout := time.After(5 * time.Second)
	for kind, ended := range map[string]chan error{"subscription": e.subscription, "member": e.member, "idle": e.idle,
		"publisher": e.publisher, "watch": e.watch, "health": e.health, "reflection": e.reflection} {
		if want[kind] == codes.OK {
			continue
		}
		select {
		case err := <-ended:
			if got := status.Code(err); got != want[kind] {
				t.Errorf("%s: ended with %v, want %s", kind, err, want[kind])
			}
		case <-timeout:
			t.Errorf("%s: goes on", kind)
		}
	}
	for kind, closed := range e.closed {
		if want[kind] == codes.OK {
			continue
		}
		select {
		case c := <-closed:
			if c.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_REVOKED {
				t.Errorf("%s: closed with %v", kind, c)
			}
		default:
			t.Errorf("%s: no closed frame", kind)
		}
	}
	for kind, ended := range map[string]chan error{"subscription": e.subscription, "member": e.member, "idle": e.idle,
		"publisher": e.publisher, "watch": e.watch, "health": e.health, "reflection": e.reflection} {
		if want[kind] != codes.OK {
			continue
		}
		select {
		case err := <-ended:
			t.Errorf("%s: ended with %v", kind, err)
		default:
		}
	}
}

func everyKind(c codes.Code) map[string]codes.Code {
	all := map[string]codes.Code{}
	for _, kind := range []string{"subscription", "member", "idle", "publisher", "watch", "health", "reflection"} {
		all[kind] = c
	}
	return all
}

func except(all map[string]codes.Code, some map[string]codes.Code) map[string]codes.Code {
	maps.Copy(all, some)
	return all
}

// TestRevocation: what each change of the auth file does to each kind of open stream.
func TestRevocation(t *testing.T) {
	const goes = codes.OK
	before := "- {name: x, token_hash: HASH:x, publish: {allow: a.*}, subscribe: {allow: [a.*]}, group: {allow: g}, admin: true}\n"
	for _, test := range []struct {
		name, after string
		want        map[string]codes.Code
	}{
		{"nothing", before, everyKind(goes)},
		{"others only", before + "- {name: z, token_hash: HASH:z}\n", everyKind(goes)},
		{"order and a second token", "- {admin: true, group: {allow: g}, name: x, token_hash: [HASH:y, HASH:x], publish: {allow: a.*}, subscribe: {allow: [a.*]}}\n", everyKind(goes)},
		{"the identity", "", everyKind(codes.Unauthenticated)},
		{"the token", strings.Replace(before, "HASH:x", "HASH:y", 1), everyKind(codes.Unauthenticated)},
		{"the admin right", strings.Replace(before, ", admin: true", "", 1), except(everyKind(goes), map[string]codes.Code{"watch": codes.PermissionDenied})},
		{"the group", strings.Replace(before, "group: {allow: g}", "group: {allow: h}", 1), except(everyKind(goes), map[string]codes.Code{"member": codes.PermissionDenied})},
		{"another group", strings.Replace(before, "group: {allow: g}", "group: {allow: [g, h]}", 1), everyKind(goes)},
		{"what it receives", strings.Replace(before, "subscribe: {allow: [a.*]}", "subscribe: {allow: [b.*]}", 1),
			except(everyKind(goes), map[string]codes.Code{"subscription": codes.PermissionDenied, "member": codes.PermissionDenied, "idle": codes.PermissionDenied})},
		{"more to receive", strings.Replace(before, "subscribe: {allow: [a.*]}", "subscribe: {allow: [a.*, b.*]}", 1),
			except(everyKind(goes), map[string]codes.Code{"subscription": codes.PermissionDenied, "member": codes.PermissionDenied, "idle": codes.PermissionDenied})},
		{"all publishing", strings.Replace(before, "publish: {allow: a.*}, ", "", 1), except(everyKind(goes), map[string]codes.Code{"publisher": codes.PermissionDenied})},
		{"some publishing", strings.Replace(before, "publish: {allow: a.*}", "publish: {allow: b.*}", 1), everyKind(goes)},
		{"its name", strings.Replace(before, "name: x", "name: y", 1),
			except(everyKind(goes), map[string]codes.Code{"subscription": codes.PermissionDenied, "member": codes.PermissionDenied, "idle": codes.PermissionDenied})},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			station := guarded(t, "identities:\n"+stayingIdentity+before)
			mine, others := openAll(t, station, "x"), openAll(t, station, "staying")
			station.server.UseIdentities(identitiesOf(t, "identities:\n"+stayingIdentity+test.after))
			wantEndings(t, mine, test.want)
			wantEndings(t, others, everyKind(goes))
		})
	}
}

// What was published once the right had gone does not arrive; who has kept it misses nothing.
func TestNothingArrivesAfterRevocation(t *testing.T) {
	two := "- {name: x, token_hash: HASH:x, subscribe: {allow: \"**\"}, group: {allow: \"*\"}}\n"
	station := guarded(t, "identities:\n"+stayingIdentity+two)
	gone := openPatterns(t, station.stub(t, as("x")), "**")
	stays := openPatterns(t, station.stub(t, as("staying")), "**")
	writer := station.stub(t, as("staying"))
	publishOne(t, writer, "before", nil)
	gone.take(t, 1)
	station.server.UseIdentities(identitiesOf(t, "identities:\n"+stayingIdentity))
	for range 10 {
		if n := publishOne(t, writer, "after", nil); n != 1 {
			t.Errorf("%d receivers", n)
		}
	}
	for {
		r, err := gone.Recv()
		if err != nil {
			checkStatus(t, err, codes.Unauthenticated, "UNAUTHENTICATED")
			break
		}
		for _, m := range r.GetMessages() {
			t.Errorf("received %s", m.GetTopic())
		}
	}
	if trailer := gone.Trailer().Get(closeReasonTrailer); fmt.Sprint(trailer) != "[CLOSE_REASON_REVOKED]" {
		t.Errorf("trailer %v", trailer)
	}
	stays.take(t, 11)
	_, err := tryOpen(within(t, 5*time.Second), station.stub(t, as("x")), &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"**"}})
	checkStatus(t, err, codes.Unauthenticated, "UNAUTHENTICATED")
}

// staysQueued reports whether n messages wait, and not only until the transport takes them.
func staysQueued(station *station, n int64) bool {
	if station.broker.Stats().QueuedMessages < n {
		return false
	}
	time.Sleep(30 * time.Millisecond)
	return station.broker.Stats().QueuedMessages >= n
}

// A publisher is judged by what holds at the time: also on a stream that was open before, and while it waits for room.
func TestPublisherFollowsItsRights(t *testing.T) {
	text := "- {name: x, token_hash: HASH:x, publish: {allow: %s}}\n"
	station := newStation(t, func(o *core.Options, s *ServerOptions) {
		o.ConsumerCapacity = 4
		s.Identities = identitiesOf(t, "identities:\n"+stayingIdentity+fmt.Sprintf(text, "a"))
	})
	stream, err := station.stub(t, as("x")).PublishStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, allowed := range []string{"a", "b", "a"} {
		if i > 0 {
			station.server.UseIdentities(identitiesOf(t, "identities:\n"+stayingIdentity+fmt.Sprintf(text, allowed)))
		}
		sendFrame(t, stream, &tinybrokerv1.Message{Topic: "a"}, &tinybrokerv1.Message{Topic: "b"})
		receipt, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]uint64{"a": 2, "b": 1}[allowed] + uint64(2*i)
		if f := receipt.GetFailures(); len(f) != 1 || f[0].GetPosition() != want {
			t.Errorf("with %s allowed: %v", allowed, receipt)
		}
	}
	// Somebody whose queue is full and who does not read makes a patient publisher wait.
	frozen := openPatterns(t, station.stub(t, append(frozenOptions(), as("staying"))...), "a")
	for range 40 {
		sendFrame(t, stream, &tinybrokerv1.Message{Topic: "a", Payload: make([]byte, 100_000)})
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		if staysQueued(station, 3) {
			break
		}
	}
	if err := stream.Send(&tinybrokerv1.PublishStreamRequest{MaxWait: durationpb.New(time.Hour), Messages: []*tinybrokerv1.Message{{Topic: "a"}, {Topic: "a"}, {Topic: "a"}}}); err != nil {
		t.Fatal(err)
	}
	receipts := make(chan *tinybrokerv1.PublishStreamResponse, 1)
	ended := receiveUntilError(stream.Recv, func(r *tinybrokerv1.PublishStreamResponse) { receipts <- r })
	select {
	case r := <-receipts:
		t.Fatalf("does not wait: %v", r)
	case <-time.After(100 * time.Millisecond):
	}
	began := time.Now()
	station.server.UseIdentities(identitiesOf(t, "identities:\n"+stayingIdentity))
	err = <-ended
	checkStatus(t, err, codes.Unauthenticated, "UNAUTHENTICATED")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("ended after %s", took)
	}
	frozen.cancel()
}

// A call that waits for somebody else is ended by a revocation, too: a publish for room, a watcher for its reader.
func TestRevocationOfWhoWaits(t *testing.T) {
	x := "- {name: x, token_hash: HASH:x, publish: {allow: a}, admin: true}\n"
	station := newStation(t, func(o *core.Options, s *ServerOptions) {
		o.ConsumerCapacity = 4
		s.Identities = identitiesOf(t, "identities:\n"+stayingIdentity+x)
	})
	staying := station.stub(t, as("staying"))
	frozen := openPatterns(t, station.stub(t, append(frozenOptions(), as("staying"))...), "a")
	defer frozen.cancel()
	for range 40 {
		publishOne(t, staying, "a", make([]byte, 100_000))
		if staysQueued(station, 3) {
			break
		}
	}
	var patterns []string
	for i := range 40 {
		patterns = append(patterns, fmt.Sprintf("%s%d", strings.Repeat("p", 400), i))
	}
	for range 20 { // so that a snapshot is more than a connection takes unread
		openPatterns(t, staying, patterns...)
	}
	conn := station.dial(t, append(frozenOptions(), as("x"))...)
	watch, err := tinybrokerv1.NewAdminServiceClient(conn).Watch(t.Context(), &tinybrokerv1.WatchRequest{Interval: durationpb.New(MinWatchInterval)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Header(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := station.stub(t, as("x")).Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: "a", MaxWait: durationpb.New(time.Hour)})
		ended <- err
	}()
	// Long enough for the watcher's second snapshot not to find room.
	select {
	case err := <-ended:
		t.Fatalf("does not wait: %v", err)
	case <-time.After(4 * MinWatchInterval):
	}
	if sessions := sessionsOf(station); sessions != 23 {
		t.Fatalf("%d calls", sessions)
	}
	station.server.UseIdentities(identitiesOf(t, "identities:\n"+stayingIdentity))
	select {
	case err := <-ended:
		checkStatus(t, err, codes.Unauthenticated, "UNAUTHENTICATED")
	case <-time.After(5 * time.Second):
		t.Error("the publish goes on")
	}
	eventually(t, "the watcher's call has ended", func() bool { return sessionsOf(station) == 21 })
	for err == nil {
		_, err = watch.Recv()
	}
	checkStatus(t, err, codes.Unauthenticated, "UNAUTHENTICATED")
}

// TestRevocationRaces: identities are exchanged while clients come and go. In the end, nobody has what was taken away.
func TestRevocationRaces(t *testing.T) {
	with := identitiesOf(t, "identities:\n"+stayingIdentity+"- {name: x, token_hash: HASH:x, publish: {allow: \"**\"}, subscribe: {allow: \"**\"}, group: {allow: \"*\"}}\n")
	less := identitiesOf(t, "identities:\n"+stayingIdentity+"- {name: x, token_hash: HASH:x, publish: {allow: \"**\"}, subscribe: {allow: \"a\"}, group: {allow: \"h\"}}\n")
	without := identitiesOf(t, "identities:\n"+stayingIdentity)
	station := newStation(t, func(_ *core.Options, o *ServerOptions) { o.Identities = with })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	conn := station.dial(t, as("x"))
	stub := tinybrokerv1.NewBrokerServiceClient(conn)
	var wg sync.WaitGroup
	var open sync.Map
	for i := range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				s, err := tryOpen(t.Context(), stub, &tinybrokerv1.OpenSubscription{TopicPatterns: []string{"**"}, ConsumerGroup: []string{"", "g"}[i%2]})
				if err == nil {
					open.Store(s, true)
				} else if c := status.Code(err); c != codes.Unauthenticated && c != codes.PermissionDenied && !errors.Is(err, io.EOF) {
					t.Errorf("open: %v", err)
				}
			}
		})
	}
	for i := 0; ctx.Err() == nil; i++ {
		station.server.UseIdentities([]*auth.Identities{with, less, without}[i%3])
	}
	station.server.UseIdentities(without)
	wg.Wait()
	eventually(t, "nobody is left", func() bool { return station.broker.Stats().Subscriptions == 0 && sessionsOf(station) == 0 })
	n := 0
	open.Range(func(key, _ any) bool {
		n++
		s := key.(*stockStream)
		for {
			if _, err := s.Recv(); err != nil {
				if c := status.Code(err); c != codes.Unauthenticated && c != codes.PermissionDenied {
					t.Errorf("ended with %v", err)
				}
				return true
			}
		}
	})
	if n < 10 {
		t.Errorf("only %d subscriptions: the test shows nothing", n)
	}
	var stopped grpc.ClientStream
	if stopped, _ = stub.PublishStream(t.Context()); stopped != nil {
		if err := stopped.RecvMsg(new(tinybrokerv1.PublishStreamResponse)); status.Code(err) != codes.Unauthenticated {
			t.Errorf("publish: %v", err)
		}
	}
}
