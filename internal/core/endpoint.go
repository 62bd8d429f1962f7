package core

import "time"

// endpoint is what a broadcast subscription and a member of a group have in common: who it is, and how its owner is told.
type endpoint struct {
	broker   *Broker
	id       string
	client   string
	peer     string
	patterns *PatternSet
	access   Access
	created  time.Time
	previous *Ending

	forgotten bool // guarded by the broker's mu

	wake chan struct{} // capacity 1: something to take
	done chan struct{} // closed at the end
}

// Access is on whose behalf somebody subscribes, and what that allows. The zero value is nobody in particular, who may receive everything.
type Access struct {
	// Identity is the name. A live subscription id is taken over by the same identity only.
	Identity string
	// Receive says which topics are allowed. It is asked about each topic: what the patterns match beside them is not
	// delivered. Nil: everything is.
	Receive *Permission
}

// consumer is an endpoint as the broker keeps it in its books.
type consumer interface {
	point() *endpoint
	end(reason EndReason)
	drain()
	// compact lets go of large frames of which little is held, and reports whether there were any.
	compact() bool
	// Ending is as in Subscription.
	Ending() Ending
	// sample takes the meters' readings for slot i.
	sample(i int)
	// stats describes the consumer; s has the times of the samples.
	stats(s *sampler) SubscriptionStats
}

func (e *endpoint) point() *endpoint { return e }

// ID returns the unique name.
func (e *endpoint) ID() string { return e.id }

// Patterns returns the patterns as given.
func (e *endpoint) Patterns() []string { return e.patterns.Strings() }

// rights implements interest.
func (e *endpoint) rights() *Permission { return e.access.Receive }

// Client returns the label given by the client.
func (e *endpoint) Client() string { return e.client }

// Peer returns where the client comes from.
func (e *endpoint) Peer() string { return e.peer }

// Previous tells how the broker ended the last subscription of this id, if that was an eviction not long ago, else nil.
func (e *endpoint) Previous() *Ending { return e.previous }

// Wake returns a channel that receives a value when there may be something to take.
func (e *endpoint) Wake() <-chan struct{} { return e.wake }

// Done returns a channel that is closed at the end; Ending then tells why.
func (e *endpoint) Done() <-chan struct{} { return e.done }

func (e *endpoint) rouse() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// newEndpoint checks names and patterns. An empty id is left for the broker to fill.
func (b *Broker) newEndpoint(id, client, peer string, patterns []string, access Access) (endpoint, error) {
	set, err := ParsePatterns(patterns)
	if err != nil {
		return endpoint{}, err
	}
	if err := access.Receive.admit(set); err != nil {
		return endpoint{}, err
	}
	for _, n := range []struct{ what, name string }{{"subscription id", id}, {"client name", client}} {
		if n.name == "" {
			continue
		}
		if err := ValidateName(n.what, n.name); err != nil {
			return endpoint{}, err
		}
	}
	return endpoint{
		broker:   b,
		id:       id,
		client:   client,
		peer:     peer,
		patterns: set,
		access:   access,
		created:  b.clock.Now(),
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
	}, nil
}
