package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

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

	making sync.Mutex // held while a snapshot is made: what one takes on the way may be much
}

// Watch implements AdminServiceServer. A snapshot is made when the one before is taken, so that a client that reads slowly does not get old ones, and holds
// one at most, for which its call answers.
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
	if err := sendPlain(stream.Context()); err != nil {
		return err
	}
	pending := &pendingFrames{call: inCallOf(stream.Context())}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		encoded, err := s.snapshot(query)
		if err != nil {
			return err
		}
		end := pending.costly(&mark, int64(len(encoded)))
		if err := stream.SendMsg(&rawFrame{bufs: mem.BufferSlice{mem.SliceBuffer(encoded), end}}); err != nil {
			return err
		}
		if err := awaitWatch(stream.Context(), s.server, pending.emptied()); err != nil {
			return err
		}
		if err := awaitWatch(stream.Context(), s.server, ticker.C); err != nil {
			return err
		}
	}
}

// snapshot encodes a WatchResponse.
func (s *adminService) snapshot(q core.Query) ([]byte, error) {
	s.making.Lock()
	defer s.making.Unlock()
	snapshot, err := s.server.broker.Observe(q)
	if err != nil {
		return nil, err
	}
	snapshot.Broker.Version = s.server.options.Version
	snapshot.Broker.Connections = s.server.connections.count()
	return proto.Marshal(snapshotToProto(snapshot))
}

// awaitWatch waits for ready, or returns why a watch is to end.
func awaitWatch[T any](ctx context.Context, s *Server, ready <-chan T) error {
	session := sessionOf(ctx)
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.broker.Draining():
		return core.ErrDraining
	case <-session.ended():
		return session.why()
	}
}

// CloseSubscription implements AdminServiceServer.
func (s *adminService) CloseSubscription(_ context.Context, request *tinybrokerv1.CloseSubscriptionRequest) (*tinybrokerv1.CloseSubscriptionResponse, error) {
	if err := s.server.broker.CloseSubscription(request.GetSubscriptionId()); err != nil {
		return nil, err
	}
	return &tinybrokerv1.CloseSubscriptionResponse{}, nil
}

// sample has the broker measure itself once a second, whether anybody watches or not: the first snapshot has rates. It also closes connections
// that have gone quiet.
func (s *Server) sample() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	t := s.options.times
	looks := time.NewTicker(t.pongTimeout)
	defer looks.Stop()
	for {
		select {
		case <-ticker.C:
			s.broker.Sample()
		case <-looks.C:
			s.connections.closeQuiet(quietLooks(t.ping, t.pongTimeout))
		case <-s.broker.Draining():
			return
		}
	}
}
