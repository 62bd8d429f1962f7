package rpc

import (
	"codeberg.org/tinybroker/tinybroker/internal/core"
)

const (
	// maxFrameBytes is how much goes into one frame; a larger message travels alone.
	maxFrameBytes = 64 << 10
	// maxWindowBytes bounds the memory that unconfirmed messages take.
	maxWindowBytes = 16 << 20
	// spareFrames is how many buffers of confirmed frames are kept for new ones.
	spareFrames = 8
)

// outFrame is one encoded PublishStreamRequest and the messages in it.
type outFrame struct {
	data  []byte
	first uint64 // position of the first message
	count int
	sends int // how often it was given to a stream
}

// last is the position of the last message.
func (f *outFrame) last() uint64 { return f.first + uint64(f.count) - 1 }

// window holds what is published and not yet confirmed, in order: frames that are closed, of which the first `sent` were
// given to the present stream, and one that is being filled. It is guarded by the publisher's mutex.
type window struct {
	prefix []byte // how each frame begins: max_wait

	frames []outFrame
	sent   int
	bytes  int // memory of frames

	filling      []byte // begins with prefix; nil when there is nothing in it
	fillingCount int

	published uint64 // position of the last message
	confirmed uint64 // all messages up to this position are dealt with
	spare     [][]byte
}

// full reports whether the next message has to wait.
func (w *window) full(maxMessages int) bool {
	return w.published-w.confirmed >= uint64(maxMessages) || w.bytes+len(w.filling) >= maxWindowBytes
}

// add encodes m and returns its position.
func (w *window) add(m *core.Message) uint64 {
	size := messageLen(m)
	if w.fillingCount > 0 && len(w.filling)+bytesFieldLen(size) > maxFrameBytes {
		w.closeFrame()
	}
	if w.filling == nil {
		w.filling = append(w.buffer(), w.prefix...)
	}
	w.filling = appendRecordOf(w.filling, m, size)
	w.fillingCount++
	w.published++
	return w.published
}

func (w *window) buffer() []byte {
	if n := len(w.spare); n > 0 {
		b := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return b[:0]
	}
	return make([]byte, 0, maxFrameBytes)
}

// closeFrame ends the frame that is being filled.
func (w *window) closeFrame() {
	f := outFrame{data: w.filling, first: w.published - uint64(w.fillingCount) + 1, count: w.fillingCount}
	w.filling, w.fillingCount = nil, 0
	if len(f.data) < cap(f.data)/2 {
		// A little in a large buffer would hold on to memory until it is confirmed.
		exact := append(make([]byte, 0, len(f.data)), f.data...)
		w.recycle(f.data)
		f.data = exact
	}
	w.bytes += cap(f.data)
	w.frames = append(w.frames, f)
}

func (w *window) recycle(b []byte) {
	if cap(b) == maxFrameBytes && len(w.spare) < spareFrames {
		w.spare = append(w.spare, b)
	}
}

// next returns the next frame to send, nil when there is none.
func (w *window) next() []byte {
	if w.sent == len(w.frames) {
		if w.fillingCount == 0 {
			return nil
		}
		w.closeFrame()
	}
	f := &w.frames[w.sent]
	w.sent++
	f.sends++
	return f.data
}

const (
	// lightFrames and lightBytes are what may be on its way, the next frame included, for that to be little. gRPC takes 64 KiB of a
	// stream before it blocks.
	lightFrames = 2
	lightBytes  = 16 << 10
)

// light reports whether little is on its way and about to be.
func (w *window) light() bool {
	return len(w.frames) < lightFrames && w.sent == len(w.frames) && w.fillingCount > 0 && w.bytes+len(w.filling) <= lightBytes
}

// allSent reports whether next would return nil.
func (w *window) allSent() bool { return w.sent == len(w.frames) && w.fillingCount == 0 }

// confirm takes all messages up to position out.
func (w *window) confirm(position uint64) {
	w.confirmed = position
	n := 0
	for n < len(w.frames) && w.frames[n].last() <= position {
		f := &w.frames[n]
		w.bytes -= cap(f.data)
		if f.sends == 1 {
			// The broker has read it, so the only stream it was given to is done with it. An earlier, broken
			// stream might not be.
			w.recycle(f.data)
		}
		n++
	}
	w.frames = append(w.frames[:0], w.frames[n:]...)
	w.sent = max(0, w.sent-n)
}

// restart prepares for a new stream: everything unconfirmed is to be sent again.
func (w *window) restart() {
	w.sent = 0
	if len(w.frames) == 0 || w.frames[0].first > w.confirmed {
		return
	}
	f := &w.frames[0]
	skip := int(w.confirmed - f.first + 1)
	rest := f.data[len(w.prefix):]
	for range skip {
		rest = rest[Encoding{}.Len(rest):]
	}
	w.bytes -= cap(f.data)
	*f = outFrame{data: append(append([]byte(nil), w.prefix...), rest...), first: w.confirmed + 1, count: f.count - skip}
	w.bytes += cap(f.data)
}

// idle reports whether everything that was published is confirmed.
func (w *window) idle() bool { return w.confirmed == w.published }
