package core

import "time"

// Message is one message in the clear, as clients see it. The broker itself handles messages only as encoded records.
type Message struct {
	Topic       string
	Payload     []byte
	Headers     map[string]string
	Key         string
	PublishTime time.Time // zero: not set
}

// Encoding is all that core needs to know of records. A record is one encoded message, with whatever framing makes it
// possible to lay records one behind the other.
//
// Implementations must be safe for concurrent use and must not keep or change the slices they are given.
type Encoding interface {
	// Len returns the length in bytes of the first record in data, framing included. data is never empty and begins
	// with a record that was accepted from a publisher.
	Len(data []byte) int
	// Topic returns the topic of a record, which may alias it.
	Topic(record []byte) []byte
	// Key returns the key of a record, which may alias it; empty: no key.
	Key(record []byte) []byte
	// Decode returns the message of a record; it may alias the record.
	Decode(record []byte) (Message, error)
	// Append encodes m as one record at the end of dst and returns the extended slice.
	Append(dst []byte, m *Message) []byte
}
