package rpc

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// sender writes a subscription's messages to its stream. It alone does.
type sender struct {
	sub    consumer
	stream grpc.ServerStream
	// underWay is how many messages are in the frame being written, or givenUp.
	underWay atomic.Int64
	dropped  atomic.Uint64 // by the overflow policy, just before the frame under way
	pending  *pendingFrames

	turn sync.Mutex    // held by whoever is sending
	d    core.Delivery // guarded by turn
}

// givenUp says that the handler has reported the frame under way as lost.
const givenUp = -1

// takeBytes is how much of a queue goes into one frame: what the design calls about 64 KiB, and room for a publisher's
// frame of that size with its last message.
const takeBytes = 72 << 10

// run sends until the subscription ends, says so, and returns nil; or until the stream breaks.
func (s *sender) run() error {
	for {
		if err := s.sendAll(); err != nil {
			return err
		}
		select {
		case <-s.sub.Wake():
		case <-s.sub.Done():
			return s.sendClosed()
		case <-s.stream.Context().Done():
			return s.stream.Context().Err()
		}
	}
}

// sendAll sends until the queue is empty.
func (s *sender) sendAll() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	for s.sub.Take(&s.d, takeBytes) {
		if err := s.send(&s.d); err != nil {
			return err
		}
	}
	return nil
}

// sendClosed writes the last frame, unless it was the handler that has closed the subscription: the status says why.
func (s *sender) sendClosed() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	ending := s.sub.Ending()
	if ending.Reason == core.EndClosed {
		return nil
	}
	frame, err := closedFrame(ending, s.pending)
	if err != nil {
		return err
	}
	return s.stream.SendMsg(&rawFrame{bufs: frame})
}

// sendDirect sends what is queued in place of run, unless that could block, and reports whether it has. A transport that has written all
// it was given takes any frame at once.
func (s *sender) sendDirect(sub *core.Subscription) (done bool) {
	if !s.turn.TryLock() {
		return false
	}
	defer s.turn.Unlock()
	if s.pending.count() > 0 {
		return false
	}
	if !s.sub.Take(&s.d, takeBytes) {
		return true
	}
	if s.send(&s.d) != nil {
		return true // run learns of it from the stream's context
	}
	left, _ := sub.Queued()
	return left == 0
}

// send writes one frame. It counts as lost when the stream broke or the handler gave up waiting, whichever the sender
// learns of.
func (s *sender) send(d *core.Delivery) error {
	n := int64(d.Count)
	s.dropped.Store(d.DroppedBefore)
	given := !s.underWay.CompareAndSwap(0, n)
	err := s.pending.await(s.stream.Context())
	if err == nil {
		err = s.stream.SendMsg(&rawFrame{bufs: deliveryFrame(d, s.pending)})
	}
	given = given || !s.underWay.CompareAndSwap(n, 0)
	s.sub.Settle(d, err == nil && !given)
	return err
}

// giveUp tells how many messages are being written, and how many were dropped just before them, for the last time: the former count as lost,
// and so does everything taken later.
func (s *sender) giveUp() (underWay int64, dropped uint64) {
	underWay = max(0, s.underWay.Swap(givenUp))
	if underWay > 0 {
		dropped = s.dropped.Load()
	}
	return underWay, dropped
}
