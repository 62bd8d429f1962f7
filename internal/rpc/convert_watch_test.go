package rpc

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// fillValue gives every field that v holds a value of its own.
func fillValue(v reflect.Value, n *int64) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem(), n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(*n, *n).UTC()))
			return
		}
		for _, field := range v.Fields() {
			fillValue(field, n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fillValue(v.Index(i), n)
		}
	case reflect.String:
		v.SetString(string(rune('a'+*n%26)) + time.Duration(*n).String())
	case reflect.Float64:
		v.SetFloat(float64(*n) / 4)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*n))
	default:
		v.SetInt(*n)
	}
}

// TestSnapshotsSurviveTheWire: a field that is added to a snapshot and forgotten in a conversion fails here.
func TestSnapshotsSurviveTheWire(t *testing.T) {
	var want core.Snapshot
	n := int64(0)
	fillValue(reflect.ValueOf(&want).Elem(), &n)
	got := snapshotFromProto(snapshotToProto(&want))
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("came back as\n%+v\nwant\n%+v", got, &want)
	}
	var query core.Query
	fillValue(reflect.ValueOf(&query).Elem(), &n)
	query.View, query.Reverse, query.Sort = core.ViewTopics, true, "in"
	back, err := queryFromProto(queryToProto(&query, time.Second))
	if err != nil || back != query {
		t.Errorf("query came back as %+v, %v; want %+v", back, err, query)
	}
}

func TestWatchShowsRowsAndClosesSubscriptions(t *testing.T) {
	station := newStation(t, nil)
	client, err := Dial(t.Context(), ClientOptions{Target: station.addr})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	stub := station.stub(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	sub := open(t, stub, &tinybrokerv1.OpenSubscription{SubscriptionId: "s", ClientName: "me", TopicPatterns: []string{"a.*"}})
	publishOne(t, stub, "a.b", []byte("x"))
	snapshot, err := client.Observe(ctx, core.Query{View: core.ViewAll})
	if err != nil {
		t.Fatal(err)
	}
	if len(snapshot.Subscriptions) != 1 || snapshot.Subscriptions[0].ID != "s" || snapshot.Subscriptions[0].Client != "me" || snapshot.Subscriptions[0].Peer == "" {
		t.Errorf("subscriptions: %+v", snapshot.Subscriptions)
	}
	if len(snapshot.Topics) != 1 || snapshot.Topics[0].InMsgs != 1 || snapshot.Topics[0].OutMsgs != 1 {
		t.Errorf("topics: %+v", snapshot.Topics)
	}
	if err := client.CloseSubscription(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseSubscription(ctx, "s"); !errors.Is(err, core.ErrNotFound) {
		t.Errorf("closing it again: %v", err)
	}
	for {
		r, err := sub.Recv()
		if err != nil {
			t.Fatalf("ended without a closed frame: %v", err)
		}
		if c := r.GetClosed(); c != nil {
			if c.GetReason() != tinybrokerv1.CloseReason_CLOSE_REASON_KICKED {
				t.Errorf("closed: %v", c)
			}
			break
		}
	}
	for _, r := range map[string]*tinybrokerv1.WatchRequest{
		"view":     {View: 99},
		"column":   {View: tinybrokerv1.View_VIEW_TOPICS, Sort: "nonsense"},
		"limit":    {Limit: 1 << 31},
		"interval": {Interval: durationpb.New(time.Millisecond)},
	} {
		stream, err := tinybrokerv1.NewAdminServiceClient(client.conn).Watch(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
	}
}
