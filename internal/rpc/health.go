package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// healthService is the standard health service: every service of the server is well until the broker drains. It is not
// the one that comes with gRPC because Watch there outlives a shutdown, which would wait for it.
type healthService struct {
	healthgrpc.UnimplementedHealthServer
	broker   *core.Broker
	services map[string]bool // names of the server's services, and "" for the server as a whole
}

// Check implements HealthServer.
func (h *healthService) Check(_ context.Context, request *healthgrpc.HealthCheckRequest) (*healthgrpc.HealthCheckResponse, error) {
	if !h.services[request.GetService()] {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &healthgrpc.HealthCheckResponse{Status: h.now()}, nil
}

// List implements HealthServer.
func (h *healthService) List(context.Context, *healthgrpc.HealthListRequest) (*healthgrpc.HealthListResponse, error) {
	all := make(map[string]*healthgrpc.HealthCheckResponse, len(h.services))
	for name := range h.services {
		all[name] = &healthgrpc.HealthCheckResponse{Status: h.now()}
	}
	return &healthgrpc.HealthListResponse{Statuses: all}, nil
}

// Watch implements HealthServer. It tells the state, tells when it changes, and ends with the broker.
func (h *healthService) Watch(request *healthgrpc.HealthCheckRequest, stream grpc.ServerStreamingServer[healthgrpc.HealthCheckResponse]) error {
	known := h.services[request.GetService()]
	state := healthgrpc.HealthCheckResponse_SERVICE_UNKNOWN
	if known {
		state = h.now()
	}
	if err := stream.Send(&healthgrpc.HealthCheckResponse{Status: state}); err != nil {
		return err
	}
	session := sessionOf(stream.Context())
	select {
	case <-stream.Context().Done():
		return stream.Context().Err()
	case <-session.ended():
		return session.why()
	case <-h.broker.Draining():
	}
	if state == healthgrpc.HealthCheckResponse_SERVING {
		if err := stream.Send(&healthgrpc.HealthCheckResponse{Status: h.now()}); err != nil {
			return err
		}
	}
	return core.ErrDraining
}

func (h *healthService) now() healthgrpc.HealthCheckResponse_ServingStatus {
	select {
	case <-h.broker.Draining():
		return healthgrpc.HealthCheckResponse_NOT_SERVING
	default:
		return healthgrpc.HealthCheckResponse_SERVING
	}
}
