package rpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// bearer sends a token with each call.
type bearer struct {
	token  func() (string, error)
	secure bool // the connection is encrypted
}

// noToken stands before why there is no token to send.
const noToken = "no token: "

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.token()
	if err != nil {
		// It may be being exchanged. What is not sent is not refused, so this is no different from a connection that cannot be made.
		return nil, status.Error(codes.Unavailable, noToken+err.Error())
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Dial has made sure that without it the token stays on this machine.
func (b bearer) RequireTransportSecurity() bool { return b.secure }
