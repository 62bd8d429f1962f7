package rpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

const (
	// MinWatchInterval is the least time between two snapshots of a watch.
	MinWatchInterval = 250 * time.Millisecond
	// MaxWatchRows is the most rows of a kind that a snapshot can be asked for.
	MaxWatchRows = 100_000

	defaultWatchInterval = time.Second
)

// adminService holds the handlers of AdminService.
type adminService struct {
	tinybrokerv1.UnimplementedAdminServiceServer
	server *Server
}

// Watch implements AdminServiceServer.
func (s *adminService) Watch(request *tinybrokerv1.WatchRequest, stream grpc.ServerStreamingServer[tinybrokerv1.WatchResponse]) error {
	interval := defaultWatchInterval
	if d := request.GetInterval(); d != nil {
		if d.CheckValid() != nil || d.AsDuration() < MinWatchInterval {
			return fmt.Errorf("%w: interval is less than %s", core.ErrProtocol, MinWatchInterval)
		}
		interval = d.AsDuration()
	}
	query, err := queryFromProto(request)
	if err != nil {
		return err
	}
	session := sessionOf(stream.Context())
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		snapshot, err := s.server.broker.Observe(query)
		if err != nil {
			return err
		}
		snapshot.Broker.Version = s.server.options.Version
		snapshot.Broker.Connections = s.server.connections.count()
		if err := stream.Send(snapshotToProto(snapshot)); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.server.broker.Draining():
			return core.ErrDraining
		case <-session.ended():
			return session.why()
		}
	}
}

// CloseSubscription implements AdminServiceServer.
func (s *adminService) CloseSubscription(_ context.Context, request *tinybrokerv1.CloseSubscriptionRequest) (*tinybrokerv1.CloseSubscriptionResponse, error) {
	if err := s.server.broker.CloseSubscription(request.GetSubscriptionId()); err != nil {
		return nil, err
	}
	return &tinybrokerv1.CloseSubscriptionResponse{}, nil
}

// sample has the broker measure itself once a second, whether anybody watches or not: the first snapshot has rates.
func (s *Server) sample() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.broker.Sample()
		case <-s.broker.Draining():
			return
		}
	}
}
