package core

// Hold keeps the bytes of a delivery accounted for after the delivery was settled, for as long as they are still being
// written out. The zero value holds nothing. Not safe for concurrent use.
type Hold struct{ frames []*frame }

// Hold makes h hold the bytes of d, which stay valid until h is released. h must hold nothing. The delivery has to be
// settled all the same.
func (d *Delivery) Hold(h *Hold) { h.frames, d.frames = d.frames, h.frames[:0] }

// Release lets go of the bytes. h may be used again.
func (h *Hold) Release() {
	for _, f := range h.frames {
		f.release()
	}
	clear(h.frames)
	h.frames = h.frames[:0]
}
