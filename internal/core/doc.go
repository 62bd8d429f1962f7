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
// # Where a message's bytes live
//
// A publisher's frame is one buffer. Queues hold references to pieces of it, whole runs of records where possible, and
// what a subscription takes is a list of slices of such buffers. Nothing is copied on the way, with one exception: an entry that
// would keep a large frame alive for a small part of it is copied when it is overtaken by another frame.
// The memory limit counts every frame once, as long as anybody refers to it.
//
// # Goroutines and locks
//
// The package starts no goroutine. Publishers and the owners of subscriptions call in; a publisher waits only for
// receivers it is patient with, and holds no lock but the gate while it does.
//
// Lock order, outermost first:
//
//	Broker.gate (held for reading by Publish, for writing by nobody but Drain)
//	Broker.mu   the subscriptions by name, and the evictions
//	shard.mu    the remembered routes of some topics; orders the publishes of each topic
//	router.mu   the index
//	Subscription.mu
//
// Broker.mu and shard.mu are never held together.
package core
