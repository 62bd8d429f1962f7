package rpc

import (
	"context"
	"strings"
	"sync"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// outage keeps track of the connection for all streams of a client, so that a loss is told once, and once more each cause that it turns
// out to have. Safe for concurrent use.
type outage struct {
	tell func(ConnectionEvent) // may be nil

	mu    sync.Mutex // held while tell is called, so that events come in order
	since time.Time  // zero: the connection stands, or has not stood yet
	told  map[string]bool
}

// lost is told why a stream was lost, or could not be opened again.
func (o *outage) lost(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	event := ConnectionEvent{Waiting: !o.since.IsZero(), Lost: o.since.IsZero(), Err: err}
	if event.Lost {
		o.since = time.Now()
		clear(o.told)
	}
	o.tellLocked(event)
}

// still is told why there is no connection yet.
func (o *outage) still(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tellLocked(ConnectionEvent{Waiting: true, Err: err})
}

// tellLocked tells of a cause that has not been told. Ports and times of day make no other cause.
func (o *outage) tellLocked(event ConnectionEvent) {
	key := strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, event.Err.Error())
	if o.told[key] {
		return
	}
	if o.told == nil {
		o.told = make(map[string]bool)
	}
	o.told[key] = true
	if o.tell != nil {
		o.tell(event)
	}
}

// back is told that a stream was opened.
func (o *outage) back() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.told)
	if o.since.IsZero() {
		return
	}
	event := ConnectionEvent{Outage: time.Since(o.since)}
	o.since = time.Time{}
	if o.tell != nil {
		o.tell(event)
	}
}

// watchOutage tells why there is no connection, until the returned function is called: first after some time, in which most outages are over,
// and then whenever that has changed. gRPC keeps it to itself while a stream waits for the connection.
func (c *Client) watchOutage(first time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause := first; sleep(ctx, pause) == nil; pause = maxPause {
			if cause := c.cause(ctx); cause != "" && ctx.Err() == nil {
				c.outage.still(c.unreachableFor(cause).Err)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// cause returns why the last attempt to connect has failed: a call that does not wait is refused with the reason. Empty: it is not known at the
// moment, or there is a connection.
func (c *Client) cause(ctx context.Context) string {
	if c.conn.GetState() == connectivity.Ready {
		return ""
	}
	probe, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := healthgrpc.NewHealthClient(c.conn).Check(probe, &healthgrpc.HealthCheckRequest{})
	if status.Code(err) != codes.Unavailable {
		return ""
	}
	return connectionCause(err)
}
