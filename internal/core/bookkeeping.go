package core

// A message in a group takes more than its bytes. What that may come to is asked for before any of it is queued: whatever becomes of messages
// later, a member's word for each of them included, takes no more and needs no room.
const (
	// parcelOverhead is what a message in a group takes when it has come to be a parcel of its own: the object, and its places in lists and
	// heaps. It is accounted for though many messages may be one parcel.
	parcelOverhead = 224
	// keyOverhead is what a key with messages in a group takes beside its bytes: the object, and its place in the map.
	keyOverhead = 256
)

// book accounts in p.room for what the first n messages of data, which are of a run, may take in so many groups. False: there is no room, and p.short tells
// how much is missing.
func (p *publication) book(b *Broker, groups int, keyed bool, data []byte, n int) bool {
	if groups == 0 {
		return true
	}
	need := int64(n) * parcelOverhead
	if keyed {
		// No more than that, which is known without a look at the messages.
		if p.acquire(b, int64(groups)*(need+int64(n)*keyOverhead+int64(len(data)))) {
			return true
		}
		need += keysIn(b.encoding, data)
	}
	need *= int64(groups)
	if p.acquire(b, need) {
		return true
	}
	p.short = need - p.room
	return false
}

// acquire brings p.room to need.
func (p *publication) acquire(b *Broker, need int64) bool {
	more := need - p.room
	switch {
	case more <= 0:
		return true
	case p.own && !b.acquireOwn(more), !p.own && !b.memory.acquire(more):
		return false
	}
	p.room = need
	return true
}

// giveBackRoom gives back what was accounted for and is not needed.
func (p *publication) giveBackRoom(b *Broker) {
	if p.room != 0 {
		b.memory.free(p.room)
		p.room = 0
	}
}

// keysIn returns what the keys of records take in a group if all differ.
func keysIn(enc Encoding, data []byte) (size int64) {
	for len(data) > 0 {
		n := enc.Len(data)
		if key := enc.Key(data[:n]); len(key) > 0 {
			size += keyOverhead + int64(len(key))
		}
		data = data[n:]
	}
	return size
}
