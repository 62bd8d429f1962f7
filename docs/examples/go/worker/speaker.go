package main

import (
	"fmt"
	"os"
	"time"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// speaker says what a member says. Errors are not looked at: when the stream has ended, Recv says why.
// It is for one goroutine, as a stream's Send is.
type speaker struct {
	stream tinybrokerv1.BrokerService_SubscribeClient
}

func (s *speaker) open(o *tinybrokerv1.OpenSubscription) {
	s.stream.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{Open: o}})
}

// settle handles one delivery, and says whether that went well.
func (s *speaker) settle(sequence uint64, m *tinybrokerv1.Message, attempt uint32, deadline time.Duration) {
	ranges := []*tinybrokerv1.SequenceRange{{First: sequence}}
	handled := make(chan error, 1)
	go func() { handled <- handle(m, attempt) }()
	// Three times in each deadline, so that long work is not given to others.
	var again <-chan time.Time
	if deadline > 0 {
		ticker := time.NewTicker(deadline / 3)
		defer ticker.Stop()
		again = ticker.C
	}
	for {
		select {
		case err := <-handled:
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", m.GetTopic(), err)
				nack := &tinybrokerv1.Nack{Ranges: ranges, Action: tinybrokerv1.NackAction_NACK_ACTION_RETRY}
				s.stream.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Nack{Nack: nack}})
				return
			}
			s.stream.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Ack{Ack: &tinybrokerv1.Ack{Ranges: ranges}}})
			return
		case <-again:
			s.stream.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Extend{Extend: &tinybrokerv1.ExtendDeadline{Ranges: ranges}}})
		}
	}
}

// leave asks for nothing more and says that nothing more will be said. What is in flight goes back.
func (s *speaker) leave() {
	s.stream.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Leave{Leave: &tinybrokerv1.Leave{}}})
	s.stream.CloseSend()
}
