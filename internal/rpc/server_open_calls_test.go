package rpc

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	reflectiongrpc "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// TestShutdownWithOpenCalls: calls that would last for ever by themselves do not hold it up.
func TestShutdownWithOpenCalls(t *testing.T) {
	station := newStation(t, nil)
	conn := station.dial(t)
	ctx := within(t, 20*time.Second)
	stub := tinybrokerv1.NewBrokerServiceClient(conn)

	watch, err := healthgrpc.NewHealthClient(conn).Watch(ctx, &healthgrpc.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := healthgrpc.NewHealthClient(conn).Watch(ctx, &healthgrpc.HealthCheckRequest{Service: "unknown"})
	if err != nil {
		t.Fatal(err)
	}
	stats, err := tinybrokerv1.NewAdminServiceClient(conn).Watch(ctx, &tinybrokerv1.WatchRequest{Interval: durationpb.New(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	reflection, err := reflectiongrpc.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	silentSubscriber, err := stub.Subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	silentPublisher, err := stub.PublishStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[healthgrpc.Health_WatchClient]healthgrpc.HealthCheckResponse_ServingStatus{
		watch: healthgrpc.HealthCheckResponse_SERVING, unknown: healthgrpc.HealthCheckResponse_SERVICE_UNKNOWN,
	} {
		if r, err := what.Recv(); err != nil || r.GetStatus() != want {
			t.Fatalf("health %v, %v", r, err)
		}
	}
	if _, err := stats.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := reflection.Send(&reflectiongrpc.ServerReflectionRequest{MessageRequest: &reflectiongrpc.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := reflection.Recv(); err != nil {
		t.Fatal(err)
	}

	if took, err := shutDown(t, station, 10*time.Second); err != nil || took > 2*time.Second {
		t.Errorf("took %s: %v", took, err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthgrpc.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health %v, %v", r, err)
	}
	for what, receive := range map[string]func() error{
		"health":                     func() error { _, err := watch.Recv(); return err },
		"health of unknown":          func() error { _, err := unknown.Recv(); return err },
		"stats":                      func() error { _, err := stats.Recv(); return err },
		"reflection":                 func() error { _, err := reflection.Recv(); return err },
		"subscriber that never asks": func() error { _, err := silentSubscriber.Recv(); return err },
		"publisher that is silent":   func() error { _, err := silentPublisher.Recv(); return err },
	} {
		if err := receive(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
}
