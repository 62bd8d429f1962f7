package rpc

import (
	"bytes"
	"errors"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// run is a number of neighbouring records that are dealt with together: good ones on one topic, with nothing between
// them, or ones refused for the same reason.
type run struct {
	topic      []byte // of good records; aliases the frame
	start, end int    // good records are frame[start:end]
	count      int    // how many records
	keyed      bool   // at least one of the good records has a key
	err        error  // nil, or why the records are refused: wraps core.ErrTopicInvalid, ErrMessageTooLarge or ErrProtocol
}

// frameScan is what a walk over a PublishStreamRequest found. It is reused from frame to frame, and what it holds
// aliases the frame. Not safe for concurrent use.
type frameScan struct {
	runs    []run
	maxWait time.Duration
	count   int // records, refused ones included

	rest  int  // where the records begin that come after maxRuns runs, and are in none of them; 0: there are none
	spill run  // the last of the runs that are not kept
	brief bool // to stop there, since the frame is known to be good
}

// maxRuns bounds the runs of one scan, so that a frame of tiny messages does not take many times its size.
const maxRuns = 4096

// scan walks an encoded PublishStreamRequest once. An error means that the frame is not valid protobuf (or max_wait is
// no patience): it wraps core.ErrProtocol, nothing of the frame may be used and the stream must end.
func (s *frameScan) scan(frame []byte, maxMessageSize int) error {
	s.brief = false
	return s.walk(frame, maxMessageSize)
}

// scanOn is scan for what is behind `rest` in a frame that was scanned before, and looks no further than it must.
func (s *frameScan) scanOn(frame []byte, maxMessageSize int) error {
	s.brief = true
	return s.walk(frame, maxMessageSize)
}

func (s *frameScan) walk(frame []byte, maxMessageSize int) error {
	s.runs, s.maxWait, s.count, s.rest = s.runs[:0], 0, 0, 0
	var wait instant
	for pos := 0; pos < len(frame) && !s.full(); {
		if n := s.takeSimple(frame, pos, maxMessageSize); n > 0 {
			pos += n
			continue
		}
		f, rest, ok := nextField(frame[pos:])
		if !ok {
			return errMalformed
		}
		end := len(frame) - len(rest)
		if f.typ == protowire.BytesType {
			switch f.num {
			case fieldMessages:
				ok = s.take(f, pos, end, maxMessageSize)
			case fieldFrameMaxWait:
				ok = mergeInstant(&wait, f.value)
			}
		}
		if !ok {
			return errMalformed
		}
		pos = end
	}
	var err error
	s.maxWait, err = wait.patience()
	return err
}

// takeSimple takes the records at frame[pos:] as long as they have the simple shape and good topics. It returns how many
// bytes they take.
func (s *frameScan) takeSimple(frame []byte, pos, maxMessageSize int) int {
	var shape simple
	var tail tail
	for next := pos; ; {
		b := frame[next:]
		if s.full() || !shape.read(b) || !tail.read(b[shape.payloadEnd:shape.end]) || shape.size()+tail.size > maxMessageSize ||
			shape.end > 2*maxMessageSize+recordAllowance {
			return next - pos
		}
		r, err := s.extend(b[shape.topicAt:shape.topicEnd], next)
		if err != nil {
			return next - pos
		}
		count, end, keyed := takeAlike(&shape, frame, next, maxMessageSize)
		r.end = end
		r.count += count
		r.keyed = r.keyed || keyed || len(tail.key) > 0
		s.count += count
		next = end
	}
}

// takeAlike counts the record at start and those behind it that look like it but for payload and tail.
func takeAlike(shape *simple, frame []byte, start, maxMessageSize int) (count, end int, keyed bool) {
	model := frame[start:]
	count, end = 1, start+shape.end
	if shape.payloadEnd == shape.end {
		for shape.like(model, frame[end:]) {
			count++
			end += shape.end
		}
		return count, end, false
	}
	var tail tail
	for shape.like(model, frame[end:]) {
		if !tail.read(frame[end+shape.payloadEnd:end+shape.end]) || shape.size()+tail.size > maxMessageSize {
			break
		}
		keyed = keyed || len(tail.key) > 0
		count++
		end += shape.end
	}
	return count, end, keyed
}

// extend returns the run that good records on topic at start belong to: the last one, or a new one. The error is that
// the topic is not legal.
func (s *frameScan) extend(topic []byte, start int) (*run, error) {
	if last := s.last(); last != nil && last.err == nil && last.end == start && bytes.Equal(last.topic, topic) {
		return last, nil
	}
	if err := core.ValidateTopic(topic); err != nil {
		return nil, err
	}
	return s.add(run{topic: topic, start: start, end: start}), nil
}

func (s *frameScan) add(r run) *run {
	if len(s.runs) == maxRuns {
		if s.rest == 0 {
			s.rest = r.start
		}
		s.spill = r
		return &s.spill
	}
	s.runs = append(s.runs, r)
	return &s.runs[len(s.runs)-1]
}

// full reports whether there is nothing left to do.
func (s *frameScan) full() bool { return s.brief && s.rest > 0 }

// last returns the run that was added last; nil: none was.
func (s *frameScan) last() *run {
	switch n := len(s.runs); {
	case s.rest > 0:
		return &s.spill
	case n > 0:
		return &s.runs[n-1]
	}
	return nil
}

// take takes a record of any shape; false: it is not valid protobuf.
func (s *frameScan) take(f field, start, end, maxMessageSize int) bool {
	m, ok := examine(f.value)
	if !ok {
		return false
	}
	if f.overlong {
		m.refuse(errOverlong)
	}
	s.count++
	if err := m.verdict(end-start, maxMessageSize); err != nil {
		s.refuse(start, end, err)
		return true
	}
	r, err := s.extend(m.topic, start)
	if err != nil {
		s.refuse(start, end, err)
		return true
	}
	r.end = end
	r.count++
	r.keyed = r.keyed || len(m.key) > 0
	return true
}

// verdict says why a message is refused, its topic's name apart.
func (m *facts) verdict(recordLen, maxMessageSize int) error {
	if err := checkSize(m.size, recordLen, maxMessageSize); err != nil {
		return err
	}
	return m.err
}

func (s *frameScan) refuse(start, end int, err error) {
	if last := s.last(); last != nil && last.err != nil && sameReason(last.err, err) {
		last.end = end
		last.count++
		return
	}
	s.add(run{start: start, end: end, count: 1, err: err})
}

func sameReason(a, b error) bool {
	for _, reason := range [...]error{core.ErrTopicInvalid, core.ErrMessageTooLarge, core.ErrProtocol} {
		if errors.Is(a, reason) {
			return errors.Is(b, reason)
		}
	}
	return false
}
