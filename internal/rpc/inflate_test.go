package rpc

import (
	"errors"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
)

// takeTurnLater runs takeTurn and tells when it has returned.
func takeTurnLater(c *inTurns) (returned <-chan error) {
	result := make(chan error, 1)
	go func() { result <- c.takeTurn() }()
	return result
}

// TestInflatesAfterCopies: what was inflated before is copied first, or it would pile up; what comes later does not hold up.
func TestInflatesAfterCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newInTurns(encoding.GetCompressor(gzip.Name))
		c.beginCopy()
		c.beginCopy()
		turn := takeTurnLater(c)
		synctest.Wait()
		c.beginCopy() // later: it is not waited for
		for left := 2; left > 0; left-- {
			synctest.Wait()
			select {
			case <-turn:
				t.Fatalf("a turn while %d messages are not copied", left)
			default:
			}
			c.endCopy()
		}
		if err := <-turn; err != nil {
			t.Fatal(err)
		}
		c.endTurn()

		waiting := takeTurnLater(c)
		synctest.Wait()
		restore := c.abandon()
		if err := <-waiting; !errors.Is(err, errAbandoned) {
			t.Errorf("a stop: got %v", err)
		}
		restore()
		c.endCopy()
		if err := c.takeTurn(); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
