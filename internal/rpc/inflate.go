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

// inTurns is a compressor that inflates no more than maxInflating messages at once, and none while some that came earlier are not copied yet:
// to copy takes new memory, for which the collector makes wait, and to inflate does not, so that they would pile up.
type inTurns struct {
	encoding.Compressor

	mu       sync.Mutex
	changed  *sync.Cond
	running  int // messages
	stopping int // servers

	copied  *sync.Cond
	arrived uint64 // large messages that are, or were, to be copied
	done    uint64 // of those
}

func newInTurns(c encoding.Compressor) *inTurns {
	t := &inTurns{Compressor: c}
	t.changed, t.copied = sync.NewCond(&t.mu), sync.NewCond(&t.mu)
	return t
}

// beginCopy notes that a large message, compressed or not, is to be copied. endCopy follows.
func (c *inTurns) beginCopy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived++
}

func (c *inTurns) endCopy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	c.copied.Broadcast()
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
	c.copied.Broadcast()
}

// takeTurn waits for a turn.
func (c *inTurns) takeTurn() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.running == maxInflating && c.stopping == 0 {
		c.changed.Wait()
	}
	c.running++
	for before := c.arrived; c.done < before && c.stopping == 0; {
		c.copied.Wait()
	}
	if c.stopping > 0 {
		c.running--
		return errAbandoned
	}
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
