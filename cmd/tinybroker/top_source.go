package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// topSource is the broker as top sees it. It connects anew after the connection was lost, whenever it is asked to
// watch again, so that the reason why that fails is the present one. Safe for concurrent use.
type topSource struct {
	options *clientOptions
	notices *notices // for what there is to say before the screen is drawn

	mu     sync.Mutex
	client *rpc.Client // nil: not connected
	closed bool
}

// begin connects and asks a first question, so that what is wrong from the start is told before anything is drawn.
func (s *topSource) begin(ctx context.Context) error {
	client, err := s.options.dial(ctx, s.notices, new(link))
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.client = client
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.options.connectTimeout)
	defer cancel()
	_, err = client.Observe(ctx, core.Query{})
	return err
}

// Watch implements tui.Source.
func (s *topSource) Watch(ctx context.Context, q core.Query, interval time.Duration, f func(*core.Snapshot) error) error {
	client, err := s.connect(ctx)
	if err != nil {
		return brief(err)
	}
	err = client.Watch(ctx, q, interval, f)
	if ctx.Err() == nil {
		s.drop(client)
	}
	return brief(err)
}

// Observe implements tui.Source.
func (s *topSource) Observe(ctx context.Context, q core.Query) (*core.Snapshot, error) {
	client, err := s.connected()
	if err != nil {
		return nil, err
	}
	return client.Observe(ctx, q)
}

// CloseSubscription implements tui.Source.
func (s *topSource) CloseSubscription(ctx context.Context, id string) error {
	client, err := s.connected()
	if err != nil {
		return err
	}
	return brief(client.CloseSubscription(ctx, id))
}

var errNotConnected = errors.New("not connected")

func (s *topSource) connected() (*rpc.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil, errNotConnected
	}
	return s.client, nil
}

func (s *topSource) connect(ctx context.Context) (*rpc.Client, error) {
	if client, err := s.connected(); err == nil {
		return client, nil
	}
	options := rpc.ClientOptions{Target: s.options.server, ConnectTimeout: s.options.connectTimeout}
	if err := s.options.security.apply(&options, noNotices()); err != nil {
		return nil, err
	}
	client, err := rpc.Dial(ctx, options)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil || s.closed { // another one was faster
		client.Close()
		if s.client == nil {
			return nil, errNotConnected
		}
		return s.client, nil
	}
	s.client = client
	return client, nil
}

// drop forgets a client whose connection is lost.
func (s *topSource) drop(client *rpc.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == client {
		s.client = nil
	}
	client.Close()
}

func (s *topSource) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.client != nil {
		s.client.Close()
	}
	s.client = nil
}

// briefError is an error without the address, which stands beside it on the screen.
type briefError struct{ *rpc.UnreachableError }

func (e briefError) Error() string { return e.Err.Error() }
func (e briefError) Unwrap() error { return e.UnreachableError }

func brief(err error) error {
	if u, ok := errors.AsType[*rpc.UnreachableError](err); ok {
		return briefError{u}
	}
	return err
}
