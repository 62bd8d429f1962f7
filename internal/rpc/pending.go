package rpc

import (
	"context"
	"sync"

	"google.golang.org/grpc/mem"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// pendingFrames are the frames of a stream that the transport has taken but not written yet. SendMsg returns long before
// that when a subscriber does not read, so their bytes have to stay accounted for. Once a stream has ended, nothing
// else tells whether its client has taken the rest. Safe for concurrent use; the zero value is ready.
type pendingFrames struct {
	member *core.Member // is told of parts of frames that are written; nil: nobody is
	call   *inCall      // answers for what frames cost; nil: nobody does

	mu    sync.Mutex
	first *pendingFrame // a list in no particular order
	n     int
	room  chan struct{} // closed when few are left; nil: nobody waits for that
	empty chan struct{} // closed when none is left; nil: nobody waits for that
}

// maxPending bounds the frames of a stream. gRPC itself bounds their bytes, and a frame of a few bytes costs it many times that.
const maxPending = 64

// pendingFrame is one of them. It is the mem.BufferPool of the frame's last bytes, which is told when the transport
// is done with those.
type pendingFrame struct {
	hold  core.Hold
	cost  int64 // what the owner's call owes for it
	owner *pendingFrames

	// Guarded by the owner's mu.
	listed     bool
	next, prev *pendingFrame
}

var pendingPool = sync.Pool{New: func() any { return new(pendingFrame) }}

// tailCapacity makes gRPC take a buffer for worth giving back, which it decides by the capacity.
const tailCapacity = 1<<10 + 1

// tail returns the buffer that ends a frame: b, whose capacity must be tailCapacity. d is what the frame delivers; nil: nothing.
func (p *pendingFrames) tail(b *[]byte, d *core.Delivery) mem.Buffer {
	f := pendingPool.Get().(*pendingFrame)
	f.owner, f.cost = p, 0
	if d != nil {
		d.Hold(&f.hold)
	}
	return p.list(b, f)
}

// costly is tail for a frame that delivers nothing and for which the call owes cost bytes.
func (p *pendingFrames) costly(b *[]byte, cost int64) mem.Buffer {
	p.call.owes(cost)
	f := pendingPool.Get().(*pendingFrame)
	f.owner, f.cost = p, cost
	return p.list(b, f)
}

func (p *pendingFrames) list(b *[]byte, f *pendingFrame) mem.Buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.listed, f.next = true, p.first
	if p.first != nil {
		p.first.prev = f
	}
	p.first = f
	p.n++
	return mem.NewBuffer(b, f)
}

// partBytes is how much of a frame is written between two signs of progress: what gRPC puts into one DATA frame.
const partBytes = 16 << 10

// appendParts appends the pieces of a delivery to a frame, and for a member, where there are partBytes or more of them, marks by which the
// transport tells how far it has got.
func (p *pendingFrames) appendParts(bufs mem.BufferSlice, d *core.Delivery) mem.BufferSlice {
	room := partBytes
	for _, piece := range d.Pieces {
		for p.member != nil && len(piece) >= room {
			bufs = append(bufs, mem.SliceBuffer(piece[:room]), mem.NewBuffer(&mark, p))
			piece, room = piece[room:], partBytes
		}
		if len(piece) > 0 {
			bufs = append(bufs, mem.SliceBuffer(piece))
			room -= len(piece)
		}
	}
	return bufs
}

// extraBuffers returns how many more than pieces appendParts appends at most.
func (p *pendingFrames) extraBuffers(d *core.Delivery) int {
	if p.member == nil {
		return 0
	}
	return 2 * int(d.Bytes/partBytes)
}

// mark is an empty buffer that gRPC gives back.
var mark = make([]byte, 0, tailCapacity)

// Put implements mem.BufferPool, for marks.
func (p *pendingFrames) Put(*[]byte) { p.member.Progress() }

// Get implements mem.BufferPool. Nobody asks for it.
func (*pendingFrames) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// count returns how many frames are pending.
func (p *pendingFrames) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// await waits until there is room for one more frame, or ctx ends.
func (p *pendingFrames) await(ctx context.Context) error {
	p.mu.Lock()
	if p.n < maxPending {
		p.mu.Unlock()
		return nil
	}
	if p.room == nil {
		p.room = make(chan struct{})
	}
	room := p.room
	p.mu.Unlock()
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// relieveLocked lets go on whoever waits for room.
func (p *pendingFrames) relieveLocked() {
	if p.room != nil && p.n <= maxPending/2 {
		close(p.room)
		p.room = nil
	}
	if p.empty != nil && p.n == 0 {
		close(p.empty)
		p.empty = nil
	}
}

// emptied returns a channel that is closed once no frame is pending.
func (p *pendingFrames) emptied() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.empty == nil {
		p.empty = make(chan struct{})
	}
	empty := p.empty
	p.relieveLocked()
	return empty
}

// letGo accounts for the frames no longer: the stream or its connection is gone, and the transport, which does not always say
// so, will not write them.
func (p *pendingFrames) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := p.first; f != nil; f = f.next {
		f.listed = false
		f.hold.Release()
		p.call.paid(f.cost)
	}
	p.first, p.n = nil, 0
	p.relieveLocked()
}

// remove takes f off the list; false: it is not there any more.
func (p *pendingFrames) remove(f *pendingFrame) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !f.listed {
		return false
	}
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		p.first = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	}
	p.n--
	f.listed, f.next, f.prev = false, nil, nil
	if p.room != nil && p.member != nil {
		p.member.Progress() // one frame after the other waits for room, however small they are
	}
	p.relieveLocked()
	return true
}

// Put implements mem.BufferPool.
func (f *pendingFrame) Put(*[]byte) {
	if !f.owner.remove(f) {
		return
	}
	f.hold.Release()
	f.owner.call.paid(f.cost)
	f.owner = nil
	pendingPool.Put(f)
}

// Get implements mem.BufferPool. Nobody asks for it.
func (*pendingFrame) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}
