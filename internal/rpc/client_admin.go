package rpc

import (
	"context"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// Observe returns one snapshot of what q asks for.
func (c *Client) Observe(ctx context.Context, q core.Query) (*core.Snapshot, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := tinybrokerv1.NewAdminServiceClient(c.conn).Watch(ctx, queryToProto(&q, 0))
	if err != nil {
		return nil, c.callError(ctx, err)
	}
	response, err := stream.Recv()
	if err != nil {
		return nil, c.callError(ctx, endedEarly(err))
	}
	return snapshotFromProto(response), nil
}

// Watch hands a snapshot to f at once and then one every interval (0: the broker's, a second), until ctx ends, f returns
// an error, or the connection breaks, and returns why. It does not reconnect.
func (c *Client) Watch(ctx context.Context, q core.Query, interval time.Duration, f func(*core.Snapshot) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := tinybrokerv1.NewAdminServiceClient(c.conn).Watch(ctx, queryToProto(&q, interval))
	if err != nil {
		return c.callError(ctx, err)
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return c.callError(ctx, endedEarly(err))
		}
		if err := f(snapshotFromProto(response)); err != nil {
			return err
		}
	}
}

// CloseSubscription ends a subscription or membership. The error is core.ErrNotFound when there is none of that id.
func (c *Client) CloseSubscription(ctx context.Context, id string) error {
	_, err := tinybrokerv1.NewAdminServiceClient(c.conn).CloseSubscription(ctx, &tinybrokerv1.CloseSubscriptionRequest{SubscriptionId: id})
	if err != nil {
		return c.callError(ctx, err)
	}
	return nil
}
