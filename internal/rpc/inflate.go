package rpc

import (
	"io"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip" // clients may compress; what subscribers get is not
)

// Compressed requests come whole, as the inbound knows them, and may grow to a thousand times their size. gRPC inflates as many at once as
// there are calls: a stranger who may ask for the broker's health, and no more, could fill the machine with a few megabytes. Here one is inflated after
// the other. Nobody waits for the network meanwhile, so a turn is as short as the processor makes it, and all of them take one processor at most.
const maxInflating = 1

func init() {
	encoding.RegisterCompressor(inTurns{encoding.GetCompressor(gzip.Name), make(chan struct{}, maxInflating)})
}

// inTurns is a compressor that inflates no more messages at once than there is room for in turns.
type inTurns struct {
	encoding.Compressor
	turns chan struct{}
}

// Decompress implements encoding.Compressor. gRPC closes what it returns once it has read the message.
func (c inTurns) Decompress(r io.Reader) (io.Reader, error) {
	c.turns <- struct{}{}
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
