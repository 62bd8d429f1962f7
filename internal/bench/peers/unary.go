package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

const (
	unarySize  = 128
	unaryCalls = 40_000
	echoMethod = "/tinybroker.bench.Echo/Echo"
)

// unaryRow compares calls of Publish, through the stub that protoc generates and with grpc-go's defaults, with calls of a method
// of a stock server that returns its request.
func unaryRow(name, title string, callers int) row {
	return row{
		name: name, title: title, peer: "grpc-go echo", metrics: []metric{{unit: "calls/s", target: "0.9"}},
		tiny: func(ctx context.Context, s *settings) ([]float64, error) {
			srv, err := s.startTiny(ctx)
			if err != nil {
				return nil, err
			}
			return unary(s, srv, callers, func(conn *grpc.ClientConn) func(*tinybrokerv1.PublishRequest) error {
				stub := tinybrokerv1.NewBrokerServiceClient(conn)
				return func(m *tinybrokerv1.PublishRequest) error {
					_, err := stub.Publish(ctx, m)
					return err
				}
			})
		},
		other: func(ctx context.Context, s *settings) ([]float64, error) {
			srv, err := startEcho()
			if err != nil {
				return nil, err
			}
			return unary(s, srv, callers, func(conn *grpc.ClientConn) func(*tinybrokerv1.PublishRequest) error {
				return func(m *tinybrokerv1.PublishRequest) error {
					return conn.Invoke(ctx, echoMethod, m, new(tinybrokerv1.PublishRequest))
				}
			})
		},
	}
}

func unary(s *settings, srv *server, callers int, stub func(*grpc.ClientConn) func(*tinybrokerv1.PublishRequest) error) ([]float64, error) {
	defer srv.stop()
	conn, err := grpc.NewClient(srv.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	call := stub(conn)
	each := max(1, int(unaryCalls*s.scale)/callers)
	if callers > 1 {
		each *= 4
	}
	if err := callAll(callers, max(1, each/10), call); err != nil { // warms up
		return nil, err
	}
	start := time.Now()
	err = callAll(callers, each, call)
	return []float64{float64(callers*each) / time.Since(start).Seconds()}, err
}

func callAll(callers, each int, call func(*tinybrokerv1.PublishRequest) error) error {
	errs := make([]error, callers)
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() {
			m := &tinybrokerv1.PublishRequest{Topic: topicRoot, Payload: make([]byte, unarySize)}
			for range each {
				if errs[i] = call(m); errs[i] != nil {
					return
				}
			}
		})
	}
	calling.Wait()
	return errors.Join(errs...)
}

// serveEcho is the stock server. It prints its address and serves until ctx ends.
func serveEcho(ctx context.Context, out io.Writer) error {
	srv := grpc.NewServer()
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "tinybroker.bench.Echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Echo",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				m := new(tinybrokerv1.PublishRequest)
				return m, decode(m)
			},
		}},
	}, struct{}{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, l.Addr())
	defer context.AfterFunc(ctx, srv.Stop)()
	return srv.Serve(l)
}
