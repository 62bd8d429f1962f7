// Package core is the broker without a network: topics, patterns, queues, subscriptions and the rules by which messages
// go from publishers to subscribers. It knows no protobuf, gRPC, files or flags; it does not log, it counts and returns;
// time and the encoding of messages come in from outside.
//
// # What is promised
//
// Batches that one publisher hands over one after the other reach every broadcast subscription in that order, across
// topics, and all subscriptions see one topic's messages in the same order. Whatever is published after Subscribe has
// returned is seen. What a subscription delivers is contiguous: a queue that overflows ends it, unless its policy
// is to drop, and then the next delivery says how many were dropped. Every message that is accepted and not delivered
// is counted with its reason, and so is every refused one.
//
// A consumer group gives each message to one member, and again until somebody acknowledges it, it has had its attempts, or the
// group goes. At every moment what the group has accepted is acknowledged, dead, dropped, waiting or in flight.
//
// # Where a message's bytes live
//
// A publisher's frame is one buffer. Queues hold references to pieces of it, whole runs of records where possible, and
// what a subscription takes is a list of slices of such buffers. Nothing is copied on the way, with one exception: entries that
// would keep a large frame alive for a small part of it are exchanged for a copy when they are overtaken by another frame, or when memory
// is full. Whoever holds the same part of the frame shares the copy.
// The memory limit counts every frame, and every copy, once, as long as anybody refers to it.
//
// In a group the pieces are parcels: in a lane while they wait, in flight at a member, back in the lane or in the dead
// letters. A parcel is split when some of its messages fare differently from the others; the bytes stay where they are. The memory limit
// counts each message as the parcel that it may become.
//
// # Goroutines and locks
//
// The package keeps no goroutine of its own. Publishers and the owners of subscriptions call in, and whoever writes for the
// owners (Hold, Member.Progress), who must not be kept waiting; a publisher waits only for receivers it is patient with, and
// holds no lock but the gate while it does, nor while it does an owner's work (Subscription.Direct). Whoever has caused dead letters
// waits a moment, without a lock, for those who read them (group.unlock). A group has one timer, whose function
// (group.tick) the clock runs in a goroutine for as long as it takes to do what is due.
//
// Lock order, outermost first:
//
//	Broker.sampleMu   the samples of which rates are made
//	Broker.gate       held for reading by Publish, for writing by nobody but Drain
//	Broker.reclaimMu  whoever makes memory free
//	Broker.mu         the subscriptions and groups by name, and the evictions
//	shard.mu          the remembered routes of some topics; orders the publishes of each topic
//	router.mu         the index
//	intake.mu         of one subscription, or of one group with all its members
//	copies.mu         of one frame
//	memory.mu         those who wait for something to be freed
//
// Broker.mu and shard.mu are never held together. Events and dead letters are published when no lock is held but the gate and, of those
// who are evicted for memory, reclaimMu.
package core
