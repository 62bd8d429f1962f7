package core

import "time"

// Delivery is what one Take hands out. It may be reused for the next one once it was settled. The zero value is ready for use.
type Delivery struct {
	// Pieces hold encoded records, in order. They are shared with other subscriptions and must not be written to. They
	// are valid until the delivery is settled.
	Pieces [][]byte
	// Count is the number of records.
	Count int
	// Bytes is their size.
	Bytes int64
	// FirstSequence is the delivery number of the first record, counted from 1 a subscription.
	FirstSequence uint64
	// Attempt counts the deliveries of these messages, this one included; always 1 for a broadcast subscription.
	Attempt int
	// DroppedBefore is how many messages were dropped by the overflow policy just before the first record.
	DroppedBefore uint64
	// Heard is how many calls of Ack, Nack, Extend and Leave the member had dealt with when this was taken; always 0 for a broadcast subscription. A call
	// with very many ranges, in whose middle others get their turn, counts when it is done.
	Heard uint64
	// Lagging is set when the queue has grown past three quarters since the last warning.
	Lagging *Lagging

	frames []*frame
	loan   *loan         // is to know when they are let go; nil: nobody is, or a Hold tells
	lent   int32         // references
	member *Member       // is to know when it is written; nil: nobody is, or a Hold tells
	born   time.Duration // when the frame of the first record came, since the broker's start
}

// maxPieces bounds the pieces of a delivery. Tiny messages that came one by one would else take many times their bytes, for each subscription that
// takes them, and for as long as they are being written.
const maxPieces = 1024

// Lagging tells how full a queue is.
type Lagging struct {
	Queued      int64 // messages
	QueuedBytes int64
	Capacity    int // slots
}

func (d *Delivery) add(e entry) {
	if d.Count == 0 {
		d.born = e.frame.born
	}
	d.Pieces = append(d.Pieces, e.data())
	d.frames = append(d.frames, e.frame)
	d.Count += int(e.n)
	d.Bytes += e.size()
}

func (d *Delivery) reset() {
	d.loan.giveBack(d.lent)
	for _, f := range d.frames {
		f.release()
	}
	clear(d.frames)
	clear(d.Pieces)
	*d = Delivery{Pieces: d.Pieces[:0], frames: d.frames[:0]}
}

// keep makes the delivery hold f, whoever else lets go of it: an ack, or a deadline, may come before the transport has written it.
func (d *Delivery) keep(f *frame) {
	if n := len(d.frames); n > 0 && d.frames[n-1] == f {
		return
	}
	f.retain()
	d.frames = append(d.frames, f)
}

// goesWith reports whether p may be in one delivery with what d holds already: all are of one attempt.
func (d *Delivery) goesWith(p *parcel) bool { return d.Count == 0 || d.Attempt == p.attempt+1 }
