package core

import "time"

// Batch is what a publisher hands over in one go.
type Batch struct {
	// Data holds the encoded records. The broker owns it from Publish on and shares it with every receiver; nobody may write to it again.
	// It must be shorter than 4 GiB.
	Data []byte
	// Runs divide Data, in order. The slice stays the caller's.
	Runs []Run
	// MaxWait is the publisher's patience: how long it will be held back by receivers whose queues are more than three quarters full, before their
	// overflow policy applies. It runs anew whenever some messages of the batch are queued, but is not spent twice on one receiver. 0: not at all.
	MaxWait time.Duration
	// Admitted is called once the broker accounts for Data, which patience may put off for as long as memory is full; not at all if Data is
	// refused. It must not block. May be nil.
	Admitted func()
}

// Run is a piece of a batch: neighbouring records on one topic. They are routed, queued and counted together.
type Run struct {
	// Topic must be a legal topic; it may alias the batch's Data.
	Topic []byte
	// Data[Start:End] are the records, Count their number.
	Start, End int
	Count      int
	// Keyed tells that some of the records have a key. It may be set though none has.
	Keyed bool

	// Err set by the caller makes Publish pass the run over, counted as refused. After Publish it says why the messages
	// after the first Accepted ones were refused; nil: none were.
	Err error
	// Accepted is how many of the run's messages, from its first on, are queued at every receiver.
	Accepted int
	// Unrouted is how many of those matched nobody. What is dropped or lost at a receiver is counted there.
	Unrouted int
	// Receivers is how many subscriptions took the last accepted message; a consumer group counts once.
	Receivers int
}
