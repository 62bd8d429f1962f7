package rpc

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// TestUnreadFramesAreAccountedFor: a client with many subscriptions that it does not read, one large message in each, cannot
// make the broker hold more than max_memory: what the transport has taken over still counts.
func TestUnreadFramesAreAccountedFor(t *testing.T) {
	const limit = 16 << 20
	station := newStation(t, func(o *core.Options, _ *ServerOptions) { o.MaxMemory = limit })
	stub := station.stub(t)
	publishOne(t, stub, "warm.up", nil)
	before := memoryInUse()
	c := dialHTTP2(t, station)
	const n = 100
	for i := range n {
		if _, err := c.call(tinybrokerv1.BrokerService_Subscribe_FullMethodName, openRequest(fmt.Sprintf("t.%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are subscribed", func() bool { return station.broker.Stats().Subscriptions == n })
	refused := 0
	for i := range n {
		_, err := stub.Publish(t.Context(), &tinybrokerv1.PublishRequest{Topic: fmt.Sprintf("t.%d", i), Payload: make([]byte, 1<<20-100)})
		if err != nil {
			refused++
			if status.Code(err) != codes.ResourceExhausted {
				t.Fatal(err)
			}
		}
	}
	if refused < n/2 {
		t.Errorf("%d of %d messages refused", refused, n)
	}
	if used := memoryInUse() - before; used > limit+n*64<<10 {
		t.Errorf("%d MiB in use, %d accounted for", used>>20, station.broker.Stats().Memory>>20)
	}
	_ = c.Close()
	eventually(t, "all is free again", func() bool {
		st := station.broker.Stats()
		return st.Memory == 0 && st.Subscriptions == 0
	})
	publishOne(t, stub, "t.1", make([]byte, 1<<20-100))
}
