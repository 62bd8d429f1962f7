package core

// Hold keeps the bytes of a delivery accounted for after the delivery was settled, for as long as they are still being
// written out. The zero value holds nothing. Not safe for concurrent use.
type Hold struct {
	frames []*frame
	loan   *loan   // is to know when they are let go; nil: nobody is
	lent   int32   // references
	member *Member // is to know when they are written; nil: nobody is
	last   uint64  // delivery number
}

// Hold makes h hold the bytes of d, which stay valid until h is released: that is when d counts as written. h must hold nothing. The
// delivery has to be settled all the same, before or after.
func (d *Delivery) Hold(h *Hold) {
	h.frames, d.frames = d.frames, h.frames[:0]
	h.loan, h.lent, d.loan = d.loan, d.lent, nil
	h.member, d.member = d.member, nil
	h.last = d.FirstSequence + uint64(d.Count) - 1
}

// Release lets go of the bytes. h may be used again. It waits for nothing but the lock of the member's group, for a moment, and not for that
// where there is no ack deadline.
func (h *Hold) Release() {
	if h.member != nil {
		h.member.written(h.last)
		h.member = nil
	}
	h.loan.giveBack(h.lent)
	h.loan = nil
	for _, f := range h.frames {
		f.release()
	}
	clear(h.frames)
	h.frames = h.frames[:0]
}
