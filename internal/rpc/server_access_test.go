package rpc

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// identitiesOf reads an auth file in which HASH:x stands for the hash of token x.
func identitiesOf(t testing.TB, text string) *auth.Identities {
	t.Helper()
	for {
		before, rest, found := strings.Cut(text, "HASH:")
		if !found {
			break
		}
		token := rest[:strings.IndexAny(rest+"\n", "\n,]} ")]
		text = before + auth.HashToken(token) + rest[len(token):]
	}
	ids, err := auth.Parse("auth.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// guarded returns a station where these identities may call.
func guarded(t testing.TB, text string) *station {
	t.Helper()
	return newStation(t, func(_ *core.Options, o *ServerOptions) { o.Identities = identitiesOf(t, text) })
}

// withToken sends a token with each call.
type withToken string

func (w withToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(w)}, nil
}
func (withToken) RequireTransportSecurity() bool { return false }

func as(token string) grpc.DialOption { return grpc.WithPerRPCCredentials(withToken(token)) }

// methodsOf lists the full names of all methods that a server offers.
func methodsOf(s *Server) []string {
	var names []string
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			names = append(names, "/"+service+"/"+m.Name)
		}
	}
	slices.Sort(names)
	return names
}

// TestEveryMethodHasARule is what whoever adds a method meets first.
func TestEveryMethodHasARule(t *testing.T) {
	station := newStation(t, nil)
	methods := methodsOf(station.server)
	for _, m := range methods {
		if rules[m] == nobody {
			t.Errorf("%s has no rule: decide who may call it, and say so in rules.go and docs/security.md", m)
		}
	}
	for m := range rules {
		if !slices.Contains(methods, m) {
			t.Errorf("there is a rule for %s, which is not offered", m)
		}
	}
	for service, info := range station.server.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			if !m.IsServerStream {
				t.Errorf("/%s/%s: a unary method reads its request before it is decided who may call: see requestsLate", service, m.Name)
			}
		}
	}
	// What the contract has is offered.
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(f.Package()), "tinybroker.") {
			return true
		}
		for i := range f.Services().Len() {
			service := f.Services().Get(i)
			for j := range service.Methods().Len() {
				if m := "/" + string(service.FullName()) + "/" + string(service.Methods().Get(j).Name()); !slices.Contains(methods, m) {
					t.Errorf("%s is in the contract and not offered", m)
				}
			}
		}
		return true
	})
}

// A method without a rule is for nobody, whether callers are asked for credentials or not.
func TestMethodsWithoutRule(t *testing.T) {
	handler := func(any, grpc.ServerStream) error { return nil }
	for name, s := range map[string]*station{"open": newStation(t, nil), "guarded": guarded(t, sweepIdentities)} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer everything"))
		err := s.server.guardStream(nil, bareStream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/new.Service/New"}, handler)
		checkStatus(t, err, codes.PermissionDenied, "PERMISSION_DENIED")
		_, err = refuseUnary(ctx, nil, nil, nil)
		checkStatus(t, err, codes.PermissionDenied, "PERMISSION_DENIED")
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

const sweepIdentities = `identities:
- {name: everything, token_hash: HASH:everything, publish: {allow: "**"}, subscribe: {allow: "**"}, group: {allow: "*"}, admin: true}
- {name: nothing, token_hash: HASH:nothing}
`

// badCredentials are ways to come without a good one, as pairs of header and value.
var badCredentials = map[string][]string{
	"none":                        nil,
	"nothing behind the scheme":   {"authorization", "Bearer "},
	"the scheme alone":            {"authorization", "Bearer"},
	"blank":                       {"authorization", ""},
	"wrong token":                 {"authorization", "Bearer wrong"},
	"part of the token":           {"authorization", "Bearer everythin"},
	"its hash":                    {"authorization", "Bearer " + auth.HashToken("everything")},
	"wrong scheme":                {"authorization", "Basic everything"},
	"no scheme":                   {"authorization", "everything"},
	"another header":              {"x-authorization", "Bearer everything"},
	"bad and good":                {"authorization", "Bearer wrong", "authorization", "Bearer everything"},
	"good and bad":                {"authorization", "Bearer everything", "authorization", "Bearer wrong"},
	"good and good":               {"authorization", "Bearer everything", "authorization", "Bearer everything"},
	"both in one":                 {"authorization", "Bearer everything, Bearer everything"},
	"a space behind the token":    {"authorization", "Bearer everything "},
	"two spaces before the token": {"authorization", "Bearer  everything"},
	"very long":                   {"authorization", "Bearer " + strings.Repeat("x", 8000)},
}

// call calls any method and returns its status. Without a request it says nothing and does not end its side.
func call(ctx context.Context, conn *grpc.ClientConn, method string, request proto.Message) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if request != nil {
		_ = stream.SendMsg(request) // receiving tells why it failed
		_ = stream.CloseSend()
	}
	return stream.RecvMsg(new(tinybrokerv1.PublishResponse)) // any message will do: what is unknown in it is kept
}

// requestOf is a good first request for a method.
func requestOf(method string) proto.Message {
	switch method {
	case tinybrokerv1.BrokerService_Publish_FullMethodName:
		return &tinybrokerv1.PublishRequest{Topic: "x"}
	case tinybrokerv1.BrokerService_PublishStream_FullMethodName:
		return &tinybrokerv1.PublishStreamRequest{Messages: []*tinybrokerv1.Message{{Topic: "x"}}}
	case tinybrokerv1.BrokerService_Subscribe_FullMethodName:
		return openRequest("x")
	}
	return &healthgrpc.HealthCheckRequest{}
}

// TestSweep calls every method in every wrong way, and in the right one.
func TestSweep(t *testing.T) {
	station := guarded(t, sweepIdentities)
	conn := station.dial(t)
	for _, method := range methodsOf(station.server) {
		for what, headers := range badCredentials {
			for _, request := range []proto.Message{nil, requestOf(method)} {
				if rules[method] == anyone && request == nil {
					continue // waits for the request
				}
				ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), headers...), 5*time.Second)
				err := call(ctx, conn, method, request)
				cancel()
				if rules[method] == anyone {
					if err != nil {
						t.Errorf("%s, %s: %v", method, what, err)
					}
					continue
				}
				checkStatus(t, err, codes.Unauthenticated, "UNAUTHENTICATED")
				if text := status.Convert(err).Message(); strings.Contains(text, "everything") || len(text) > 200 {
					t.Errorf("%s, %s: says %q", method, what, text)
				}
			}
		}
		if t.Failed() {
			t.Fatal(method)
		}
		nothing := call(within(t, 5*time.Second), station.dial(t, as("nothing")), method, requestOf(method))
		if rules[method] == anyone || rules[method] == anyIdentity {
			if status.Code(nothing) == codes.Unauthenticated || status.Code(nothing) == codes.PermissionDenied {
				t.Errorf("%s, without rights: %v", method, nothing)
			}
		} else {
			checkStatus(t, nothing, codes.PermissionDenied, "PERMISSION_DENIED")
		}
		for _, scheme := range []string{"Bearer", "bearer", "BEARER"} {
			ctx := metadata.AppendToOutgoingContext(within(t, 5*time.Second), "authorization", scheme+" everything")
			err := call(ctx, conn, method, requestOf(method))
			switch status.Code(err) {
			case codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.Internal, codes.Unknown, codes.DeadlineExceeded:
				t.Errorf("%s, %s: %v", method, scheme, err)
			}
		}
	}
	eventually(t, "all subscriptions are gone", func() bool { return station.broker.Stats().Subscriptions == 0 })
	st := station.broker.Stats()
	if want := uint64(2 * 3); st.Published != want {
		t.Errorf("%d messages published, want the %d of those who may", st.Published, want)
	}
	eventually(t, "all sessions are forgotten", func() bool { return sessionsOf(station) == 0 })
	if lines := station.log.with(t, "call refused"); len(lines) == 0 || len(lines) > 20*60 {
		t.Errorf("%d lines of refusals", len(lines))
	}
}

func sessionsOf(s *station) int {
	s.server.access.mu.Lock()
	defer s.server.access.mu.Unlock()
	return len(s.server.access.sessions)
}

// Unknown methods do not exist, for whoever asks.
func TestUnknownMethod(t *testing.T) {
	err := call(within(t, 5*time.Second), guarded(t, sweepIdentities).dial(t), "/tinybroker.v1.BrokerService/Peek", openRequest("x"))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("%v", err)
	}
}

// Who calls without a credential, and then says nothing, is not waited for.
func TestSilentStrangers(t *testing.T) {
	station := newStation(t, func(_ *core.Options, o *ServerOptions) {
		o.Identities = identitiesOf(t, sweepIdentities)
		o.times.strange = 200 * time.Millisecond
	})
	began := time.Now()
	err := call(within(t, 5*time.Second), station.dial(t), healthgrpc.Health_Check_FullMethodName, nil)
	checkStatus(t, err, codes.InvalidArgument, "PROTOCOL")
	if took := time.Since(began); took < 150*time.Millisecond || took > 3*time.Second {
		t.Errorf("after %s", took)
	}
}
