package rpc

import "time"

// quiet notices that nothing comes on a connection any more. As a rule gRPC is faster: what is there answers its pings, and what does not, it
// closes. But it times them by the wall clock. Once that is set back, it asks on some connections only when the clock is where it was. Looks are
// counted, and not time, so that a process that was stopped itself takes nobody for gone. The zero value is ready.
type quiet struct {
	heard int64 // bytes, at the last look
	looks int   // since that has changed
}

// look returns for how many looks, this one included, no more than these bytes have been received.
func (q *quiet) look(received int64) int {
	if received != q.heard {
		q.heard, q.looks = received, 0
	}
	q.looks++
	return q.looks
}

// quietLooks is how many looks, a pongTimeout apart, may find nothing new on a connection on which gRPC sends pings.
func quietLooks(ping, pongTimeout time.Duration) int {
	return int((ping + 3*pongTimeout) / pongTimeout)
}
