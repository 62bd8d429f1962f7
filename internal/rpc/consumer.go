package rpc

import (
	"fmt"
	"iter"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// consumer is what the loops of a Subscribe call need of a *core.Subscription or a *core.Member.
type consumer interface {
	ID() string
	Client() string
	Peer() string
	Patterns() []string
	Capacity() (slots int, bytes int64)
	Previous() *core.Ending

	Take(d *core.Delivery, maxBytes int64) bool
	Settle(d *core.Delivery, written bool)
	Wake() <-chan struct{}
	Done() <-chan struct{}
	Ending() core.Ending
	Leave()
	Revoke()
	Close()
}

// join opens what an `open` asks for: a membership when it names a group, else a broadcast subscription.
func join(b *core.Broker, open *tinybrokerv1.OpenSubscription, peer string, access core.Access) (consumer, error) {
	if err := checkOpen(open); err != nil {
		return nil, err
	}
	if open.GetConsumerGroup() == "" {
		options := subscribeOptions(open)
		options.Peer, options.Access = peer, access
		sub, err := b.Subscribe(options)
		if err != nil {
			return nil, err
		}
		return sub, nil
	}
	options, err := joinOptions(open)
	if err != nil {
		return nil, err
	}
	options.Peer, options.Access = peer, access
	m, err := b.Join(options)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// answer deals with one request of a member's subscriber after `open`; ranges are those of readRequest.
func answer(m *core.Member, request *tinybrokerv1.SubscribeRequest, ranges iter.Seq[core.SequenceRange]) error {
	switch r := request.GetRequest().(type) {
	case *tinybrokerv1.SubscribeRequest_Ack:
		m.AckEach(ranges)
	case *tinybrokerv1.SubscribeRequest_Nack:
		nack, err := nackFromProto(r.Nack)
		if err != nil {
			return err
		}
		m.NackEach(nack, ranges)
	case *tinybrokerv1.SubscribeRequest_Extend:
		d, err := durationFromProto("deadline", r.Extend.GetDeadline())
		if err != nil {
			return err
		}
		m.ExtendEach(min(d, maxRequestDuration), ranges)
	case *tinybrokerv1.SubscribeRequest_Leave:
		m.Leave()
	case *tinybrokerv1.SubscribeRequest_Open:
		return errSecondOpen
	default:
		return errEmptyRequest
	}
	return nil
}

// answerBroadcast does the same for a broadcast subscription, which has nothing to acknowledge.
func answerBroadcast(s consumer, request *tinybrokerv1.SubscribeRequest) error {
	switch request.GetRequest().(type) {
	case *tinybrokerv1.SubscribeRequest_Leave:
		s.Leave()
	case *tinybrokerv1.SubscribeRequest_Open:
		return errSecondOpen
	case nil:
		return errEmptyRequest
	default:
		return fmt.Errorf("%w: a broadcast subscription has nothing to acknowledge", core.ErrProtocol)
	}
	return nil
}

var (
	errSecondOpen   = fmt.Errorf("%w: a second `open`", core.ErrProtocol)
	errEmptyRequest = fmt.Errorf("%w: an empty request", core.ErrProtocol)
)
