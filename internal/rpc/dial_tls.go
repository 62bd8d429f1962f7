package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
)

// explainedTLS is TLS that tells why the broker does not take the client's certificate. With TLS 1.3 the handshake is over for the client
// before the broker has looked at it. The first write then fails, or the first read says why; what gRPC tells depends on which is first.
//
// It asks for its configuration anew at each handshake.
type explainedTLS struct {
	credentials.TransportCredentials // of the first configuration: what is told of it holds for all
	config                           func() *tls.Config
}

func newExplainedTLS(config func() *tls.Config) credentials.TransportCredentials {
	return explainedTLS{credentials.NewTLS(config()), config}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c explainedTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := c.config()
	conn, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return explainedConn{conn, newRenewal(conn, config, c.config)}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c explainedTLS) Clone() credentials.TransportCredentials {
	return explainedTLS{c.TransportCredentials.Clone(), c.config}
}

type explainedConn struct {
	net.Conn
	renewal *renewal
}

// Read implements net.Conn.
func (c explainedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		err = c.renewal.explain(err)
	}
	return n, err
}

// Close implements net.Conn.
func (c explainedConn) Close() error {
	c.renewal.stop()
	return c.Conn.Close()
}

// Write implements net.Conn. When it fails, and the broker has said why before it hung up, that is the error.
func (c explainedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil {
		return n, nil
	}
	if err := c.renewal.explain(err); errors.Is(err, errRenewed) {
		return n, err
	}
	// Nothing is lost by reading: the connection is of no use any more.
	if c.SetReadDeadline(time.Now().Add(100*time.Millisecond)) == nil {
		if _, why := c.Read(make([]byte, 1)); why != nil && strings.Contains(why.Error(), "remote error: tls: ") {
			return n, why
		}
	}
	return n, err
}
