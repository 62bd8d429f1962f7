package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// PublishStream implements BrokerServiceServer. The frames are read by a goroutine of their own: only by returning can
// the handler end a stream whose publisher is silent while the broker drains.
func (s *brokerService) PublishStream(stream grpc.BidiStreamingServer[tinybrokerv1.PublishStreamRequest, tinybrokerv1.PublishStreamResponse]) error {
	connOf(stream.Context()).use()
	session := sessionOf(stream.Context())
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	select {
	case <-s.server.broker.Draining(): // not even an empty frame gets a receipt
		return core.ErrDraining
	default:
	}
	if err := sendPlain(stream.Context()); err != nil {
		return err
	}
	call := inCallOf(ctx)
	p := &publishStream{
		server: s.server, broker: s.server.broker, stream: stream, ctx: ctx, session: session, call: call, settle: call.settle,
		turn: make(chan struct{}, 1), pending: pendingFrames{call: call},
	}
	p.turn <- struct{}{}
	select {
	case err := <-s.server.start(p.run):
		return p.end(err)
	case <-call.refusal():
		return giveUp(stream.Context(), &p.pending)
	case <-s.server.broker.Draining():
		return p.end(core.ErrDraining)
	case <-session.ended():
		cancel() // it may be waiting for room
		return p.end(session.why())
	}
}

// publishStream is one PublishStream call.
type publishStream struct {
	server *Server
	broker *core.Broker
	stream grpc.ServerStream
	// ctx is the stream's and ends with the right to publish, too.
	ctx     context.Context
	session *session
	call    *inCall
	settle  func() // of call

	turn chan struct{} // capacity 1; empty from a frame's publication until its receipt is sent

	weight          int64  // of the frame that is dealt with, in bytes of memory
	position        uint64 // messages dealt with so far
	pending         pendingFrames
	*publishScratch // while a frame is dealt with
}

// publishScratch is what dealing with a frame takes beside it. It is not kept by the stream, of which there may be thousands that are idle.
type publishScratch struct {
	scan frameScan
	runs []core.Run
}

var publishScratches = sync.Pool{New: func() any { return new(publishScratch) }}

const (
	// maxFailures bounds the failures of one receipt, so that every publisher can receive it.
	maxFailures = 1000

	// smallReceipt is the most that a receipt takes as a part of what any call takes.
	smallReceipt = 256
)

// end waits for the receipt of the frame being published, after which no other is, and until the publisher has taken all receipts: those of
// streams that have ended would else take memory that no call answers for. A publisher that takes too long loses its connection. It returns what the
// stream ends with: mostly err.
func (p *publishStream) end(err error) error {
	patience := time.NewTimer(p.server.options.times.linger)
	defer patience.Stop()
	published := func() <-chan struct{} { return p.turn }
	for _, done := range [...]func() <-chan struct{}{published, p.pending.emptied} {
		select {
		case <-done():
		case <-patience.C:
			p.server.closeUnread(p.stream.Context())
			return err
		case <-p.call.refusal():
			return giveUp(p.stream.Context(), &p.pending)
		case <-p.stream.Context().Done():
			return err
		}
	}
	return err
}

// closeUnread closes the connection of a publisher that does not take its receipts.
func (s *Server) closeUnread(ctx context.Context) {
	conn := connOf(ctx)
	if conn == nil {
		return
	}
	if s.lines.unread.allow(s.log) {
		s.log.Warn("connection closed: the receipts of an ended publish stream were not read", "peer", conn.RemoteAddr().String())
	}
	_ = conn.Close()
}

// run publishes one frame after the other. A frame's receipt is sent before the next frame is read, so that a publisher who does not read its
// receipts is not read either.
func (p *publishStream) run() error {
	for {
		var frame rawFrame
		err := p.stream.RecvMsg(&frame)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.publish(frame.data); err != nil {
			return err
		}
	}
}

func (p *publishStream) publish(frame []byte) error {
	if err := p.server.checkFrame(frame); err != nil {
		return err
	}
	p.publishScratch = publishScratches.Get().(*publishScratch)
	defer p.forget()
	if err := p.scan.scan(frame, p.broker.Options().MaxMessageSize); err != nil {
		return err
	}
	if p.scan.rest > 0 {
		return p.publishPieces(frame)
	}
	return p.publishScanned(frame, p.scan.maxWait, p.settle)
}

// publishPieces publishes a frame of many runs a part at a time. The frame has been scanned for the first time. Parts are copied, so that a
// message that is kept does not keep all of the frame.
func (p *publishStream) publishPieces(frame []byte) error {
	patience := p.scan.maxWait
	for {
		rest := p.scan.rest
		if rest == 0 {
			rest = len(frame)
		}
		begun := time.Now()
		if err := p.publishScanned(bytes.Clone(frame[:rest]), patience, nil); err != nil {
			return err
		}
		if frame = frame[rest:]; len(frame) == 0 {
			return nil
		}
		patience = max(0, patience-time.Since(begun))
		p.clearRuns()
		if err := p.scan.scanOn(frame, p.broker.Options().MaxMessageSize); err != nil {
			return err
		}
	}
}

// publishScanned publishes what was scanned, which is in data. admitted is called once the broker accounts for that.
func (p *publishStream) publishScanned(data []byte, maxWait time.Duration, admitted func()) error {
	may := p.session.publishing()
	for _, r := range p.scan.runs {
		if r.err == nil {
			r.err = checkPublish(may, r.topic)
		}
		p.runs = append(p.runs, core.Run{Topic: r.topic, Start: r.start, End: r.end, Count: r.count, Keyed: r.keyed, Err: r.err})
	}
	select {
	case <-p.turn:
	case <-p.ctx.Done():
		return core.ErrDraining // the handler has ended the stream, or is about to
	}
	defer func() { p.turn <- struct{}{} }()
	p.weight = int64(len(data) + len(p.runs)*core.RunWeight)
	err := p.broker.Publish(p.ctx, &core.Batch{Data: data, Runs: p.runs, MaxWait: maxWait, Admitted: admitted})
	// Receivers have just been woken. They go first: a receipt written now would be on a processor that they wait for.
	runtime.Gosched()
	whole, sendErr := p.confirm()
	if sendErr != nil {
		return sendErr
	}
	if !whole {
		return err
	}
	return nil
}

// forget lets go of the frame, which the runs refer to.
func (p *publishStream) forget() {
	p.clearRuns()
	publishScratches.Put(p.publishScratch)
	p.publishScratch = nil
}

func (p *publishStream) clearRuns() {
	clear(p.runs)
	clear(p.scan.runs)
	p.runs, p.scan.runs, p.scan.spill = p.runs[:0], p.scan.runs[:0], run{}
}

// confirm sends the receipt for the runs, in several parts when much was refused. whole is false when the broker stopped in
// the middle, draining or since the publisher has gone: then only the messages before that are dealt with, and the
// publisher is to send the others again elsewhere.
func (p *publishStream) confirm() (whole bool, err error) {
	before := p.position
	receipt := &tinybrokerv1.PublishStreamResponse{}
	whole = true
	for i := range p.runs {
		if len(receipt.Failures) == maxFailures {
			receipt.AcceptedThrough = p.position
			if err := p.send(receipt); err != nil {
				return false, err
			}
			receipt = &tinybrokerv1.PublishStreamResponse{}
		}
		if whole = p.account(&p.runs[i], receipt); !whole {
			break
		}
	}
	if !whole && p.position == before {
		return false, nil
	}
	receipt.AcceptedThrough = p.position
	return whole, p.send(receipt)
}

// send sends one receipt. A publisher that does not take its receipts is not read any more before they take much.
func (p *publishStream) send(receipt *tinybrokerv1.PublishStreamResponse) error {
	if p.pending.count() > 0 { // it may have to wait, and what it belongs to with it
		p.call.owes(p.weight)
		defer p.call.paid(p.weight)
	}
	if err := p.pending.await(p.ctx); err != nil {
		return err
	}
	encoded, err := proto.Marshal(receipt)
	if err != nil {
		return err
	}
	cost := int64(len(encoded))
	if cost <= smallReceipt {
		cost = 0
	}
	head := p.pending.costly(&receiptHead, cost)
	return p.stream.SendMsg(&rawFrame{bufs: mem.BufferSlice{head, mem.SliceBuffer(encoded)}})
}

const fieldUnrouted = 2 // PublishStreamResponse

// receiptHead begins every receipt, and says nothing: `unrouted` is 0, unless it follows.
var receiptHead = protowire.AppendVarint(protowire.AppendTag(make([]byte, 0, tailCapacity), fieldUnrouted, protowire.VarintType), 0)

// account adds what became of a run to a receipt; false: the run and those after it were not dealt with to the end.
func (p *publishStream) account(run *core.Run, receipt *tinybrokerv1.PublishStreamResponse) bool {
	receipt.Unrouted += uint64(run.Unrouted)
	p.position += uint64(run.Accepted)
	if run.Err == nil {
		return true
	}
	code, reason := reasonOf(run.Err)
	if reason == "" || errors.Is(run.Err, core.ErrDraining) {
		return false
	}
	refused := uint64(run.Count - run.Accepted)
	receipt.Failures = append(receipt.Failures, &tinybrokerv1.PublishFailure{
		Position: p.position + 1,
		Count:    refused,
		Code:     int32(code),
		Reason:   reason,
		Text:     boundText(run.Err.Error()),
	})
	p.position += refused
	return true
}
