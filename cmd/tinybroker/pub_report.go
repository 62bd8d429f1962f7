package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// receiptWriter puts on standard output what is asked for: receipts, or the records that were accepted.
type receiptWriter struct {
	w    io.Writer
	tee  bool
	json bool
	buf  []byte
}

func newReceiptWriter(w io.Writer, tee, json bool) *receiptWriter {
	return &receiptWriter{w: w, tee: tee, json: json}
}

func (r *receiptWriter) write(receipt rpc.Receipt, done []sent) error {
	if r.json {
		r.buf = appendReceipt(r.buf, receipt, done)
	}
	if r.tee && receipt.Err == nil {
		for _, m := range done {
			r.buf = append(r.buf, m.raw...)
		}
	}
	if len(r.buf) == 0 {
		return nil
	}
	_, err := r.w.Write(r.buf)
	r.buf = r.buf[:0]
	return err
}

// appendReceipt appends one line: {"first":1,"last":40,"unrouted":0}, with "error" when these were refused. first and
// last count the messages sent, from 1.
func appendReceipt(dst []byte, r rpc.Receipt, done []sent) []byte {
	dst = append(dst, `{"first":`...)
	dst = strconv.AppendUint(dst, r.First, 10)
	dst = append(dst, `,"last":`...)
	dst = strconv.AppendUint(dst, r.Last, 10)
	dst = append(dst, `,"unrouted":`...)
	dst = strconv.AppendUint(dst, r.Unrouted, 10)
	if r.Err != nil {
		dst = append(dst, `,"error":`...)
		dst = appendJSONString(dst, r.Err.Error())
		if len(done) > 0 {
			dst = append(dst, `,"record":`...)
			dst = appendJSONString(dst, done[0].where())
		}
	}
	return append(dst, "}\n"...)
}

// showProgress draws a line a second, from the first second on, until the returned function is called.
func (s *pubSession) showProgress() (stop func()) {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.notices.show(s.totals())
			case <-ctx.Done():
				s.notices.clear()
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// totals says how far it has come, in one short line.
func (s *pubSession) totals() string {
	confirmed, _, unrouted, _ := s.ledger.counts()
	text := count(confirmed, "message") + " confirmed"
	if took := time.Since(s.started); !s.typed {
		text += " in " + roughDuration(took)
		if took >= time.Second {
			text += fmt.Sprintf(" (%.0f/s, %s)", float64(confirmed)/took.Seconds(), roughSize(s.ledger.confirmedBytes()))
		}
	}
	if unrouted > 0 {
		text += fmt.Sprintf(", %s without a subscription", number(unrouted))
	}
	return text
}

// summary is the last line for people: on a terminal, or with -v.
func (s *pubSession) summary() {
	if s.terminal || s.o.verbose {
		s.notices.info("%s", s.totals())
	}
}
