package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// resettingProxy stands between a client and a site, and resets streams when a test wants it to.
type resettingProxy struct {
	site *testSite

	mu    sync.Mutex // held while a frame is written to a client
	conns []*proxiedConn
}

type proxiedConn struct {
	client  net.Conn
	streams map[uint32]bool // that the broker has answered on and not ended
}

func (p *resettingProxy) dial(ctx context.Context, address string) (net.Conn, error) {
	broker, err := p.site.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	mine, theirs := net.Pipe()
	c := &proxiedConn{client: mine, streams: make(map[uint32]bool)}
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	go func() {
		_, _ = io.Copy(broker, mine)
		_ = broker.Close()
	}()
	go func() {
		for p.forward(c, broker) == nil {
		}
		_ = mine.Close()
	}()
	return theirs, nil
}

// forward passes one frame on to the client.
func (p *resettingProxy) forward(c *proxiedConn, broker io.Reader) error {
	const headerBytes, endsStream = 9, 1
	var header [headerBytes]byte
	if _, err := io.ReadFull(broker, header[:]); err != nil {
		return err
	}
	kind, flags, stream := http2.FrameType(header[3]), header[4], binary.BigEndian.Uint32(header[5:])
	frame := make([]byte, headerBytes+(int(header[0])<<16|int(header[1])<<8|int(header[2])))
	copy(frame, header[:])
	if _, err := io.ReadFull(broker, frame[headerBytes:]); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case kind == http2.FrameRSTStream, kind == http2.FrameHeaders && flags&endsStream != 0:
		delete(c.streams, stream)
	case kind == http2.FrameHeaders:
		c.streams[stream] = true
	}
	_, err := c.client.Write(frame)
	return err
}

// reset ends every stream, and leaves the connections alone.
func (p *resettingProxy) reset(t *testing.T, code http2.ErrCode) {
	t.Helper()
	p.end(t, func(f *http2.Framer, stream uint32) error { return f.WriteRSTStream(stream, code) })
}

// tear ends every stream as if all had been said, in the middle of a message.
func (p *resettingProxy) tear(t *testing.T) {
	t.Helper()
	p.end(t, func(f *http2.Framer, stream uint32) error {
		return f.WriteData(stream, true, []byte("\x00\x00\x00\x00\x09half"))
	})
}

func (p *resettingProxy) end(t *testing.T, how func(f *http2.Framer, stream uint32) error) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.conns {
		for stream := range c.streams {
			if err := how(http2.NewFramer(c.client, nil), stream); err != nil {
				t.Error(err)
			}
			n++
		}
		clear(c.streams)
	}
	if n == 0 {
		t.Error("no stream to reset")
	}
}

// client returns a client whose connection goes by p. It counts losses and returns.
func (p *resettingProxy) client(t *testing.T, events *[]ConnectionEvent) *Client {
	t.Helper()
	return p.site.client(t, func(o *ClientOptions) {
		o.DialOptions = []grpc.DialOption{grpc.WithContextDialer(p.dial)}
		o.OnConnection = func(e ConnectionEvent) { *events = append(*events, e) }
	})
}

// TestResetStreamsComeBack: a stream that a proxy ends, for whatever reason it gives, is a lost connection: told, and made again. What a
// publisher has no receipt for is sent again.
func TestResetStreamsComeBack(t *testing.T) {
	type ending struct {
		told string
		how  func(*testing.T, *resettingProxy)
	}
	endings := []ending{{"stream closed without a status", func(t *testing.T, p *resettingProxy) { t.Helper(); p.tear(t) }}}
	for _, code := range []http2.ErrCode{
		http2.ErrCodeNo, http2.ErrCodeProtocol, http2.ErrCodeInternal, http2.ErrCodeCancel, http2.ErrCodeRefusedStream, http2.ErrCodeEnhanceYourCalm,
	} {
		endings = append(endings, ending{"stream reset with " + code.String(), func(t *testing.T, p *resettingProxy) { t.Helper(); p.reset(t, code) }})
	}
	for _, ending := range endings {
		t.Run(ending.told, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				site := newSite(t, nil)
				p := &resettingProxy{site: site}
				var events [3][]ConnectionEvent
				subs := []*subscription{
					subscribe(t, p.client(t, &events[0]), SubscribeOptions{Patterns: []string{"a"}}),
					subscribe(t, p.client(t, &events[1]), SubscribeOptions{Patterns: []string{"a"}, Group: "g"}),
				}
				publisher := newPublisher(t, p.client(t, &events[2]), PublisherOptions{})
				const rounds = 4
				for round := range rounds {
					if _, err := publisher.Publish(t.Context(), &core.Message{Topic: "a", Payload: fmt.Append(nil, round)}); err != nil {
						t.Fatal(err)
					}
					if err := publisher.Flush(within(t, time.Minute)); err != nil {
						t.Fatal(err)
					}
					for _, s := range subs {
						if got := string(s.take(t, 1)[0].Payload); got != fmt.Sprint(round) {
							t.Fatalf("round %d: %q came", round, got)
						}
					}
					time.Sleep(time.Second)
					ending.how(t, p)
					time.Sleep(maxPause + time.Second)
				}
				synctest.Wait()
				for i, events := range events {
					if len(events) != 2*rounds {
						t.Fatalf("client %d: %d events, of %d", i, len(events), 2*rounds)
					}
					if lost := events[0]; !lost.Lost || lost.Err.Error() != ending.told {
						t.Errorf("client %d: the loss is told as %+v", i, lost)
					}
				}
			})
		})
	}
}

// TestUnconfirmedAfterAReset: what was on its way when a stream was reset is sent again.
func TestUnconfirmedAfterAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := newSite(t, nil)
		p := &resettingProxy{site: site}
		var events []ConnectionEvent
		s := subscribe(t, site.client(t, nil), SubscribeOptions{Patterns: []string{"a"}})
		publisher := newPublisher(t, p.client(t, &events), PublisherOptions{})
		time.Sleep(time.Second)
		p.reset(t, http2.ErrCodeInternal)
		for i := range 100 {
			if _, err := publisher.Publish(t.Context(), &core.Message{Topic: "a", Payload: fmt.Append(nil, i)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := publisher.Flush(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		came := make(map[string]bool)
		for synctest.Wait(); len(s.deliveries) > 0; {
			d := <-s.deliveries
			came[string(d.Payload)] = true
		}
		if len(came) != 100 {
			t.Errorf("%d of 100 messages came", len(came))
		}
	})
}

// TestCancelledByTheOtherEnd: that somebody in between cancels is a loss, and no end that was asked for; nor is a deadline that is not ours.
func TestCancelledByTheOtherEnd(t *testing.T) {
	for _, code := range []codes.Code{codes.Canceled, codes.DeadlineExceeded} {
		t.Run(code.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeBroker{}
				f.subscribe = func(n int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
					if n == 2 {
						return status.Error(code, "at the opening")
					}
					if err := sendOpened(stream, &tinybrokerv1.Opened{}); err != nil {
						return err
					}
					if n == 1 {
						return status.Error(code, "later")
					}
					<-stream.Context().Done()
					return nil
				}
				s := subscribe(t, f.client(t, nil), SubscribeOptions{Patterns: []string{"a"}})
				time.Sleep(time.Minute)
				if len(s.gaps) != 1 || len(s.opened) != 2 {
					t.Errorf("%d gaps, opened %d times", len(s.gaps), len(s.opened))
				}
				f = &fakeBroker{}
				f.subscribe = func(int, *tinybrokerv1.OpenSubscription, fakeSubscribeStream) error { return status.Error(code, "") }
				f.publish = func(int, fakePublishStream) error { return status.Error(code, "") }
				c := f.client(t, func(o *ClientOptions) { o.ReconnectTimeout = 10 * time.Second })
				isLost := func(err error) {
					t.Helper()
					var u *UnreachableError
					if !errors.As(err, &u) || u.Err.Error() != code.String() || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v", err)
					}
				}
				isLost(c.Subscribe(t.Context(), SubscribeOptions{Patterns: []string{"a"}}, nil))
				isLost(c.callError(t.Context(), status.Error(code, "")))
				p := newPublisher(t, c, PublisherOptions{})
				time.Sleep(time.Minute)
				if _, err := p.Publish(t.Context(), &core.Message{Topic: "a"}); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Minute)
				if n := f.called(); n > 70 {
					t.Errorf("%d calls in two minutes", n)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := c.callError(ctx, status.Error(code, "")); !errors.Is(err, context.Canceled) {
					t.Errorf("after the end of the call's context: %v", err)
				}
				if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("closed: %v", err)
				}
			})
		})
	}
}

// TestTroublesOfAProxy: what a proxy fails at is a lost connection, whatever gRPC makes of its answer. What it refuses, and what a web server says,
// is the end.
func TestTroublesOfAProxy(t *testing.T) {
	for answer, want := range map[string]struct {
		code codes.Code
		lost bool
	}{
		"500 (Internal Server Error)": {codes.Unknown, true},
		"503 (Service Unavailable)":   {codes.Unavailable, true},
		"520 ()":                      {codes.Unknown, true},
		"408 (Request Timeout)":       {codes.Unknown, true},
		"404 (Not Found)":             {codes.Unimplemented, false},
		"403 (Forbidden)":             {codes.PermissionDenied, false},
		"301 (Moved Permanently)":     {codes.Unknown, false},
	} {
		t.Run(answer, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := httpAnswer + answer + `; transport: received unexpected content-type "text/html"`
				f := &fakeBroker{}
				f.subscribe = func(n int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
					if n == 2 {
						return status.Error(want.code, text)
					}
					if err := sendOpened(stream, &tinybrokerv1.Opened{}); err != nil {
						return err
					}
					if n == 1 {
						return status.Error(codes.Unavailable, "gone")
					}
					<-stream.Context().Done()
					return nil
				}
				s := subscribe(t, f.client(t, nil), SubscribeOptions{Patterns: []string{"a"}})
				time.Sleep(time.Minute)
				if lost := len(s.opened) == 2; lost != want.lost {
					t.Errorf("came back: %v", lost)
				}
				if !want.lost {
					if err := <-s.result; status.Code(err) != want.code {
						t.Errorf("ended with %v", err)
					}
				}
			})
		})
	}
}

// TestFailureOfTheBroker: what the broker itself has failed at is not tried again.
func TestFailureOfTheBroker(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.Unknown} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeBroker{subscribe: func(_ int, _ *tinybrokerv1.OpenSubscription, stream fakeSubscribeStream) error {
				if err := sendOpened(stream, &tinybrokerv1.Opened{}); err != nil {
					return err
				}
				return status.Error(code, "internal error")
			}}
			s := subscribe(t, f.client(t, nil), SubscribeOptions{Patterns: []string{"a"}})
			if err := <-s.result; status.Code(err) != code || f.called() != 2 {
				t.Errorf("%v", err)
			}
		})
	}
}
