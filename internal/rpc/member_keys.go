package rpc

import (
	"strings"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// failedKeys keeps the order of messages with one key when one of them fails. The broker delivers none behind it until it comes again;
// but those that are at the member already, or on their way, have to go back. Guarded by the membership's mu; the zero value is ready.
//
// How long they take to reach a handler says nothing: handlers may be slow. What counts is whether the broker had heard of the failure when it sent
// them. It sends no more than max_in_flight deliveries beyond those that it knows to be settled, so none with a number above that is meant.
type failedKeys struct {
	byKey map[string]failedKey
}

// failedKey is a key of which a message has failed.
type failedKey struct {
	attempt uint32 // of the message that has failed: it comes again with a higher one
	told    bool   // the broker is being told
	through uint64 // when told: the last number that it may have sent before it heard
}

// failed notes that a message was given back, to be tried again; received is how many deliveries have come, and maxInFlight how many may be in flight.
func (f *failedKeys) failed(key string, attempt uint32, received, maxInFlight uint64) {
	for k, e := range f.byKey {
		if e.told && e.through+maxInFlight < received {
			delete(f.byKey, k) // whatever it was about has been handled or has gone back
		}
	}
	if f.byKey == nil {
		f.byKey = make(map[string]failedKey)
	}
	f.byKey[strings.Clone(key)] = failedKey{attempt: attempt} // the delivery's memory is used again
}

// tell notes that the broker is being told everything there is to tell, and then knows that this many deliveries are settled.
func (f *failedKeys) tell(settled, maxInFlight uint64) {
	for k, e := range f.byKey {
		if !e.told {
			e.told, e.through = true, settled+maxInFlight
			f.byKey[k] = e
		}
	}
}

// waits reports whether delivery n may have been sent before the broker knew that a message with the same key has failed, which comes before it.
func (f *failedKeys) waits(n uint64, key string, attempt uint32) bool {
	e, ok := f.byKey[key]
	if !ok {
		return false
	}
	if attempt > e.attempt || e.told && n > e.through {
		delete(f.byKey, key)
		return false
	}
	return true
}

// orderMatters reports whether what has the same key as a delivery that is given back like this must not be handled before it.
func orderMatters(d *Delivery, nack *core.Nack, maxAttempts uint32) bool {
	return d.Key != "" && nack != nil && nack.Action == core.NackRetry && d.Attempt < maxAttempts
}
