package rpc

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

const (
	defaultWatchInterval = time.Second
	minWatchInterval     = 250 * time.Millisecond
)

// adminService holds the handlers of AdminService.
type adminService struct {
	tinybrokerv1.UnimplementedAdminServiceServer
	server *Server
}

// adminServiceDesc is the generated description with one difference: a request that is no protobuf gets our status.
var adminServiceDesc = func() grpc.ServiceDesc {
	d := tinybrokerv1.AdminService_ServiceDesc
	d.Streams = slices.Clone(d.Streams)
	for i := range d.Streams {
		if d.Streams[i].StreamName == "Watch" {
			d.Streams[i].Handler = handleWatch
		}
	}
	return d
}()

func handleWatch(srv any, stream grpc.ServerStream) error {
	var request tinybrokerv1.WatchRequest
	if err := receive(stream, &request); err != nil {
		return err
	}
	return srv.(*adminService).Watch(&request, &grpc.GenericServerStream[tinybrokerv1.WatchRequest, tinybrokerv1.WatchResponse]{ServerStream: stream})
}

// Watch implements AdminServiceServer.
func (s *adminService) Watch(request *tinybrokerv1.WatchRequest, stream grpc.ServerStreamingServer[tinybrokerv1.WatchResponse]) error {
	interval := defaultWatchInterval
	if d := request.GetInterval(); d != nil {
		if d.CheckValid() != nil || d.AsDuration() < minWatchInterval {
			return fmt.Errorf("%w: interval is less than %s", core.ErrProtocol, minWatchInterval)
		}
		interval = d.AsDuration()
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		stats := s.server.broker.Stats()
		stats.Version = s.server.options.Version
		if err := stream.Send(&tinybrokerv1.WatchResponse{Broker: statsToProto(stats)}); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.server.broker.Draining():
			return core.ErrDraining
		}
	}
}
