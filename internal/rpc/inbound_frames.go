package rpc

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// frameWalk follows the frames of an HTTP/2 connection, whatever pieces they come in. What is not HTTP/2 leads it astray, and gRPC
// then closes the connection.
type frameWalk struct {
	preface int // bytes of it that are still to come
	header  [frameHeaderBytes]byte
	have    int // bytes of header

	// The frame at hand.
	length  uint32
	typ     http2.FrameType
	flags   http2.Flags
	stream  uint32
	left    uint32 // bytes of it that are still to come
	padding uint32 // of which are padding
	padded  bool   // the length of the padding is still to come

	// The header that was read last.
	call        uint32
	headerBytes uint32
}

const frameHeaderBytes = 9

func newFrameWalk() frameWalk { return frameWalk{preface: len(http2.ClientPreface)} }

// walkEvent is what frameWalk has come by.
type walkEvent int

const (
	nothingNew  walkEvent = iota
	frameBegins           // the header of a frame is whole
	dataComes             // a piece of the data of a call, without padding
	headerEnds            // the header of a call is whole
)

func (w *frameWalk) isData() bool { return w.typ == http2.FrameData }

// next goes on by size bytes, at least one of b.
func (w *frameWalk) next(b []byte) (event walkEvent, size int) {
	switch {
	case w.preface > 0:
		size = min(w.preface, len(b))
		w.preface -= size
		return nothingNew, size
	case w.left == 0:
		size = copy(w.header[w.have:], b)
		if w.have += size; w.have < frameHeaderBytes {
			return nothingNew, size
		}
		w.begin()
		if w.left == 0 && w.endsHeader() {
			return headerEnds, size
		}
		return frameBegins, size
	case w.padded:
		w.padded = false
		w.left--
		w.padding = min(uint32(b[0]), w.left)
		return nothingNew, 1
	case w.isData() && w.left > w.padding:
		size = int(min(w.left-w.padding, uint32(min(len(b), 1<<24))))
		w.left -= uint32(size)
		return dataComes, size
	}
	size = int(min(w.left, uint32(min(len(b), 1<<24))))
	w.left -= uint32(size)
	if w.left == 0 && w.endsHeader() {
		return headerEnds, size
	}
	return nothingNew, size
}

func (w *frameWalk) begin() {
	w.have = 0
	w.length = uint32(w.header[0])<<16 | uint32(binary.BigEndian.Uint16(w.header[1:]))
	w.typ, w.flags = http2.FrameType(w.header[3]), http2.Flags(w.header[4])
	w.stream = binary.BigEndian.Uint32(w.header[5:]) &^ (1 << 31)
	w.left, w.padding = w.length, 0
	w.padded = w.isData() && w.flags.Has(http2.FlagDataPadded) && w.length > 0
	switch w.typ {
	case http2.FrameHeaders:
		w.call, w.headerBytes = w.stream, w.length
	case http2.FrameContinuation:
		w.headerBytes += w.length
	}
}

func (w *frameWalk) endsHeader() bool {
	return (w.typ == http2.FrameHeaders || w.typ == http2.FrameContinuation) && w.flags.Has(http2.FlagHeadersEndHeaders)
}

// messageParser finds the ends of the gRPC messages in the data of a call. The zero value is ready.
type messageParser struct {
	prefix [messagePrefixBytes]byte
	have   int
	left   uint32 // bytes of the message at hand that are still to come
	cost   int64  // what has come since the last end, as memory
}

const messagePrefixBytes = 5

// read goes on and calls ended with the cost of each message that is whole.
func (m *messageParser) read(b []byte, ended func(cost int64)) {
	for len(b) > 0 {
		if m.have < messagePrefixBytes {
			n := copy(m.prefix[m.have:], b)
			b = b[n:]
			if m.have += n; m.have < messagePrefixBytes {
				return
			}
			m.left = binary.BigEndian.Uint32(m.prefix[1:])
		}
		n := min(m.left, uint32(min(len(b), 1<<24)))
		b = b[n:]
		if m.left -= n; m.left == 0 {
			ended(m.cost)
			m.have, m.cost = 0, 0
		}
	}
}
