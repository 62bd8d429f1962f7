package rpc

import (
	"encoding/binary"
	"hash/maphash"
	"strings"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// failedKeys keeps the order of messages with one key when one of them fails. The broker delivers none behind it until it comes again;
// but those that are at the member already, or on their way, have to go back. Guarded by the membership's mu; the zero value is ready.
//
// How long they take to reach a handler says nothing: handlers may be slow. What counts is whether the broker had heard of the failure, and of what went
// back after it, when it sent them. It had if the number is high enough, since it has no more than max_in_flight deliveries under way that it
// does not know to be settled. And it had if the message that failed comes again, or one that went back: it keeps the order of a key. These
// are known by what they contain, the first one by its attempt, too, and the others only if they were not here yet when the broker was told: a publisher
// may have sent the same message twice. What is
// given back in error, because the one that failed has been dealt with by another member meanwhile, comes again at once and is known then.
type failedKeys struct {
	byKey map[string]*failedKey
	seed  maphash.Seed
}

// failedKey is a key of which a message has failed.
type failedKey struct {
	id       uint64              // of the message that has failed
	attempt  uint32              // of it: it comes again with a higher one
	back     map[uint64]struct{} // what went back after it
	told     bool                // the broker is being told of all that
	received uint64              // when told: the last number that had come, which it has sent without having heard
	through  uint64              // when told: the last number that it may have sent before it heard
}

// failed notes that d was given back, to be tried again; received is how many deliveries have come, and maxInFlight how many may be in flight.
func (f *failedKeys) failed(d *Delivery, received, maxInFlight uint64) {
	if f.byKey == nil {
		f.byKey, f.seed = make(map[string]*failedKey), maphash.MakeSeed()
	}
	for k, e := range f.byKey {
		if e.told && e.through+maxInFlight < received {
			delete(f.byKey, k) // whatever the broker had sent has been handled or has gone back
		}
	}
	// The delivery's memory is used again.
	f.byKey[strings.Clone(d.Key)] = &failedKey{id: f.identify(d), attempt: d.Attempt, back: make(map[uint64]struct{})}
}

// tell notes that the broker is being told everything there is to tell, and then knows that so many of the received deliveries are settled.
func (f *failedKeys) tell(settled, received, maxInFlight uint64) {
	for _, e := range f.byKey {
		if !e.told {
			e.told, e.received, e.through = true, received, settled+maxInFlight
		}
	}
}

// waits reports whether d may have been sent before the broker knew that a message with the same key has failed, which comes before it. If so, d has
// to go back.
func (f *failedKeys) waits(d *Delivery) bool {
	e := f.byKey[d.Key]
	if e == nil {
		return false
	}
	id := f.identify(d)
	// A higher attempt alone says nothing: others may have been tried more often, where another member crashed with them.
	failedAgain := id == e.id && d.Attempt > e.attempt
	_, wentBack := e.back[id]
	if failedAgain || e.told && (d.Sequence > e.through || wentBack && d.Sequence > e.received) {
		delete(f.byKey, d.Key)
		return false
	}
	e.back[id] = struct{}{}
	e.told = false
	return true
}

// identify tells one message of a key from another.
func (f *failedKeys) identify(d *Delivery) uint64 {
	var h maphash.Hash
	h.SetSeed(f.seed)
	var stamp [16]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(d.PublishTime.UnixNano()))
	binary.BigEndian.PutUint64(stamp[8:], uint64(len(d.Topic)))
	h.Write(stamp[:])
	h.WriteString(d.Topic)
	h.Write(d.Payload)
	return h.Sum64()
}

// orderMatters reports whether what has the same key as a delivery that is given back like this must not be handled before it.
func orderMatters(d *Delivery, nack *core.Nack, maxAttempts uint32) bool {
	return d.Key != "" && nack != nil && nack.Action == core.NackRetry && d.Attempt < maxAttempts
}
