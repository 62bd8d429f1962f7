package rpc

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// http2Client speaks HTTP/2 by hand: it opens windows, answers pings and reads only when it is told to, and costs next to
// nothing.
type http2Client struct {
	net.Conn
	*http2.Framer
	headers bytes.Buffer
	encoder *hpack.Encoder
	next    uint32 // stream

	emptyEnd bool        // headers end with a frame of their own, which is empty
	more     [][2]string // headers beside the usual ones
}

// dialHTTP2 connects and completes the handshake. The connection is closed at the test's end.
func dialHTTP2(t testing.TB, s *station, settings ...http2.Setting) *http2Client {
	t.Helper()
	conn := silence(t, s, http2.ClientPreface)[0]
	c := &http2Client{Conn: conn, Framer: http2.NewFramer(conn, conn), next: 1}
	c.encoder = hpack.NewEncoder(&c.headers)
	if err := c.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	err := c.read(func(f http2.Frame) bool {
		theirs, ok := f.(*http2.SettingsFrame)
		return ok && !theirs.IsAck()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WriteSettingsAck(); err != nil {
		t.Fatal(err)
	}
	return c
}

// call begins a call and sends its first request, leaving the stream open. It returns the stream's number.
func (c *http2Client) call(method string, request proto.Message) (uint32, error) {
	stream, err := c.begin(method)
	if err != nil {
		return 0, err
	}
	return stream, c.message(stream, request)
}

// message sends one more request of a call.
func (c *http2Client) message(stream uint32, request proto.Message) error {
	body, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	data := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	for chunk := range slices.Chunk(data, 16<<10) {
		if err := c.WriteData(stream, false, chunk); err != nil {
			return err
		}
	}
	return nil
}

// begin begins a call and leaves it to the caller to send anything.
func (c *http2Client) begin(method string) (uint32, error) {
	c.headers.Reset()
	for _, h := range append([][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "test"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	}, c.more...) {
		if err := c.encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return 0, err
		}
	}
	stream := c.next
	c.next += 2
	err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.headers.Bytes(), EndHeaders: !c.emptyEnd})
	if err == nil && c.emptyEnd {
		err = c.WriteContinuation(stream, true, nil)
	}
	return stream, err
}

// read hands frames to handle until that says stop or the connection ends. It writes nothing.
func (c *http2Client) read(handle func(http2.Frame) (stop bool)) error {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return err
		}
		if handle(f) {
			return nil
		}
	}
}
