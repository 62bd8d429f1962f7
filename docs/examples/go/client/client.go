// Package client connects the examples to a broker, as the environment says: TINYBROKER_SERVER, TINYBROKER_TLS_CA for a broker with TLS,
// and TINYBROKER_TOKEN_FILE for one that wants a token.
package client

import (
	"cmp"
	"context"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Connect returns a connection, which is made when it is first used. The caller closes it.
func Connect() (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		// Notices within 15 s that the broker's machine has gone. More often than every 5 s is cut off.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
	}
	transport := insecure.NewCredentials()
	if ca := os.Getenv("TINYBROKER_TLS_CA"); ca != "" {
		var err error
		if transport, err = credentials.NewClientTLSFromFile(ca, ""); err != nil {
			return nil, err
		}
	}
	options = append(options, grpc.WithTransportCredentials(transport))
	if file := os.Getenv("TINYBROKER_TOKEN_FILE"); file != "" {
		options = append(options, grpc.WithPerRPCCredentials(tokenFile(file)))
	}
	return grpc.NewClient(cmp.Or(os.Getenv("TINYBROKER_SERVER"), "127.0.0.1:7710"), options...)
}

// tokenFile is read for each call, so that a token can be exchanged.
type tokenFile string

// GetRequestMetadata returns what identifies the caller.
func (f tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := os.ReadFile(string(f))
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(token))}, nil
}

// RequireTransportSecurity says that the token is sent over TLS only.
func (tokenFile) RequireTransportSecurity() bool { return true }
