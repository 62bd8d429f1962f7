package rpc

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

func TestGroupSettingsOfABroadcastAreRefused(t *testing.T) {
	stub := newStation(t, nil).stub(t)
	for name, o := range map[string]*tinybrokerv1.OpenSubscription{
		"max_in_flight": {MaxInFlight: 1},
		"max_attempts":  {MaxAttempts: 1},
		"ack_deadline":  {AckDeadline: durationpb.New(0)},
		"ack_mode":      {AckMode: tinybrokerv1.AckMode_ACK_MODE_EXPLICIT},
		"mode":          {Mode: tinybrokerv1.DeliveryMode_DELIVERY_MODE_SINGLE},
	} {
		t.Run(name, func(t *testing.T) {
			o.TopicPatterns = []string{"a"}
			stream, err := stub.Subscribe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&tinybrokerv1.SubscribeRequest{Request: &tinybrokerv1.SubscribeRequest_Open{Open: o}}); err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
		})
	}
}
