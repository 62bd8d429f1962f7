package rpc

import (
	"slices"
	"strings"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// failedKeys keeps the order of messages with one key when one of them fails. The broker delivers none behind it until it comes again;
// but those that are at the member already, or on their way, have to go back: those that the broker has sent before it heard of the failure, which each
// frame tells. Guarded by the membership's mu; the zero value is ready.
type failedKeys struct{ byKey map[string]*failedKey }

// failedKey is a key of which a message has failed.
type failedKey struct {
	sequence uint64 // of the delivery that has failed
	request  uint64 // the number of the request by which the broker is told; 0: not yet
	settled  uint64 // with so many deliveries received, all that was sent before the broker heard has been handled or has gone back
}

// failed notes that a delivery was given back, to be tried again; received is how many deliveries have come.
func (f *failedKeys) failed(key string, sequence, received uint64) {
	if f.byKey == nil {
		f.byKey = make(map[string]*failedKey)
	}
	for k, e := range f.byKey {
		if e.request > 0 && e.settled < received {
			delete(f.byKey, k)
		}
	}
	f.byKey[strings.Clone(key)] = &failedKey{sequence: sequence} // the delivery's memory is used again
}

// tell notes that request number n gives back some deliveries. With so many received as settled says, what was sent before the broker hears of that is
// no longer here.
func (f *failedKeys) tell(ranges []core.SequenceRange, n, settled uint64) {
	for _, e := range f.byKey {
		isIn := func(r core.SequenceRange) bool { return r.First <= e.sequence && e.sequence <= r.Last }
		if e.request == 0 && slices.ContainsFunc(ranges, isIn) {
			e.request, e.settled = n, settled
		}
	}
}

// waits reports whether the broker had sent d before it knew that a message with the same key has failed, which comes before it. If so, d has
// to go back.
func (f *failedKeys) waits(d *Delivery) bool {
	e := f.byKey[d.Key]
	if e == nil {
		return false
	}
	if e.request == 0 || d.heard < e.request {
		return true
	}
	delete(f.byKey, d.Key)
	return false
}

// orderMatters reports whether what has the same key as a delivery that is given back like this must not be handled before it.
func orderMatters(d *Delivery, nack *core.Nack, maxAttempts uint32) bool {
	return d.Key != "" && nack != nil && nack.Action == core.NackRetry && d.Attempt < maxAttempts
}
