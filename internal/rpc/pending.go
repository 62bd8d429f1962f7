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
	mu    sync.Mutex
	first *pendingFrame // a list in no particular order
	n     int
	room  chan struct{} // closed when few are left; nil: nobody waits for that
}

// maxPending bounds the frames of a stream. gRPC itself bounds their bytes, and a frame of a few bytes costs it many times that.
const maxPending = 64

// pendingFrame is one of them. It is the mem.BufferPool of the frame's last bytes, which is told when the transport
// is done with those.
type pendingFrame struct {
	hold  core.Hold
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
	f.owner = p
	if d != nil {
		d.Hold(&f.hold)
	}
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
}

// letGo accounts for the frames no longer: the stream or its connection is gone, and the transport, which does not always say
// so, will not write them.
func (p *pendingFrames) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := p.first; f != nil; f = f.next {
		f.listed = false
		f.hold.Release()
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
	p.relieveLocked()
	return true
}

// Put implements mem.BufferPool.
func (f *pendingFrame) Put(*[]byte) {
	if !f.owner.remove(f) {
		return
	}
	f.hold.Release()
	f.owner = nil
	pendingPool.Put(f)
}

// Get implements mem.BufferPool. Nobody asks for it.
func (*pendingFrame) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}
