package rpc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// brokerService holds the handlers of BrokerService.
type brokerService struct {
	tinybrokerv1.UnimplementedBrokerServiceServer
	server *Server
}

// brokerServiceDesc is the generated description with one difference: Publish gets its request undecoded.
var brokerServiceDesc = func() grpc.ServiceDesc {
	d := tinybrokerv1.BrokerService_ServiceDesc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		if d.Methods[i].MethodName == "Publish" {
			d.Methods[i].Handler = handlePublish
		}
	}
	return d
}()

func handlePublish(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	request := new(requestFrame)
	if err := decode(request); err != nil {
		return nil, err
	}
	return srv.(*brokerService).publish(ctx, request.data)
}

// publish is Publish for an encoded PublishRequest with requestRoom before it.
func (s *brokerService) publish(ctx context.Context, request []byte) (*tinybrokerv1.PublishResponse, error) {
	connOf(ctx).use()
	broker, session := s.server.broker, sessionOf(ctx)
	record, topic, maxWait, err := s.server.readPublish(request, session.publishing())
	if err != nil {
		broker.CountRefused(err, 1)
		return nil, err
	}
	runs := [1]core.Run{{Topic: topic, End: len(record), Count: 1, Keyed: true}}
	if maxWait > 0 {
		var release func()
		ctx, release = session.hold(ctx)
		defer release()
	}
	if err := broker.Publish(ctx, &core.Batch{Data: record, Runs: runs[:], MaxWait: maxWait, Admitted: inCallOf(ctx).settle}); err != nil {
		if why := session.why(); why != nil {
			return nil, why
		}
		return nil, err
	}
	if err := runs[0].Err; err != nil {
		return nil, err
	}
	return &tinybrokerv1.PublishResponse{Receivers: uint32(runs[0].Receivers)}, nil
}

// readPublish is publishRecord for a publisher who may publish what may says.
func (s *Server) readPublish(request []byte, may *core.Permission) (record, topic []byte, maxWait time.Duration, err error) {
	if err := s.checkFrame(request[requestRoom:]); err != nil {
		return nil, nil, 0, err
	}
	record, topic, maxWait, err = publishRecord(request, s.broker.Options().MaxMessageSize)
	if err == nil {
		err = checkPublish(may, topic)
	}
	return record, topic, maxWait, err
}

// checkFrame refuses a gRPC message that no legal request is as large as.
func (s *Server) checkFrame(frame []byte) error {
	if limit := s.frameLimit(); len(frame) > limit {
		return fmt.Errorf("%w: a gRPC message of %d bytes, the most is %d; one message has a limit of %d bytes",
			core.ErrMessageTooLarge, len(frame), limit, s.broker.Options().MaxMessageSize)
	}
	return nil
}
