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

var inflating = newInTurns(encoding.GetCompressor(gzip.Name))

func init() { encoding.RegisterCompressor(inflating) }

// inTurns is a compressor that inflates no more than maxInflating messages at once.
type inTurns struct {
	encoding.Compressor

	mu       sync.Mutex
	changed  *sync.Cond
	running  int // messages
	stopping int // servers
}

func newInTurns(c encoding.Compressor) *inTurns {
	t := &inTurns{Compressor: c}
	t.changed = sync.NewCond(&t.mu)
	return t
}

var errAbandoned = errors.New("the server is stopping")

// abandon refuses to inflate anything in the process, whoever waits for a turn included, until restore is called. gRPC hands over no context: a server that
// stops would have to wait until all that was sent to it is inflated.
func (c *inTurns) abandon() (restore func()) {
	c.stop(1)
	return func() { c.stop(-1) }
}

func (c *inTurns) stop(servers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping += servers
	c.changed.Broadcast()
}

// takeTurn waits for a turn.
func (c *inTurns) takeTurn() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.running == maxInflating && c.stopping == 0 {
		c.changed.Wait()
	}
	if c.stopping > 0 {
		return errAbandoned
	}
	c.running++
	return nil
}

func (c *inTurns) endTurn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.changed.Signal()
}

// Decompress implements encoding.Compressor. gRPC closes what it returns once it has read the message.
func (c *inTurns) Decompress(r io.Reader) (io.Reader, error) {
	if err := c.takeTurn(); err != nil {
		return nil, err
	}
	inflated, err := c.Compressor.Decompress(r)
	if err != nil {
		c.endTurn()
		return nil, err
	}
	return &turn{inflated, c}, nil
}

// turn is a message that is being inflated.
type turn struct {
	io.Reader
	turns *inTurns
}

// Close implements io.Closer.
func (t *turn) Close() error {
	defer t.turns.endTurn()
	if c, ok := t.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
