package rpc

import (
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip" // clients may compress; what subscribers get is not
)

// Compressed requests come whole, as the inbound knows them, and may grow to a thousand times their size. gRPC inflates as many at once as
// there are calls: a stranger who may ask for the broker's health, and no more, could fill the machine with a few megabytes. Here one is inflated after
// the other. Nobody waits for the network meanwhile, so a turn is as short as the processor makes it, and all of them take one processor at most.
const maxInflating = 1

var inflating = &inTurns{
	Compressor: encoding.GetCompressor(gzip.Name),
	turns:      make(chan struct{}, maxInflating),
	abandoned:  make(chan struct{}),
}

func init() { encoding.RegisterCompressor(inflating) }

// inTurns is a compressor that inflates no more messages at once than there is room for in turns.
type inTurns struct {
	encoding.Compressor
	turns chan struct{}

	mu        sync.Mutex
	stopping  int           // servers
	abandoned chan struct{} // closed while there are any
}

var errAbandoned = errors.New("the server is stopping")

// abandon refuses to inflate anything in the process, whoever waits for a turn included, until restore is called. gRPC hands over no context: a server that
// stops would have to wait until all that was sent to it is inflated.
func (c *inTurns) abandon() (restore func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping++; c.stopping == 1 {
		close(c.abandoned)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.stopping--; c.stopping == 0 {
			c.abandoned = make(chan struct{})
		}
	}
}

// takeTurn waits for a turn.
func (c *inTurns) takeTurn() error {
	c.mu.Lock()
	abandoned := c.abandoned
	c.mu.Unlock()
	select {
	case <-abandoned:
		return errAbandoned
	default:
	}
	select {
	case c.turns <- struct{}{}:
		return nil
	case <-abandoned:
		return errAbandoned
	}
}

// Decompress implements encoding.Compressor. gRPC closes what it returns once it has read the message.
func (c *inTurns) Decompress(r io.Reader) (io.Reader, error) {
	if err := c.takeTurn(); err != nil {
		return nil, err
	}
	inflated, err := c.Compressor.Decompress(r)
	if err != nil {
		<-c.turns
		return nil, err
	}
	return &turn{inflated, c.turns}, nil
}

// turn is a message that is being inflated.
type turn struct {
	io.Reader
	turns chan struct{}
}

// Close implements io.Closer.
func (t *turn) Close() error {
	defer func() { <-t.turns }()
	if c, ok := t.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
