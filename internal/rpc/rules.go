package rpc

import (
	"fmt"

	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"codeberg.org/tinybroker/tinybroker/internal/auth"
	"codeberg.org/tinybroker/tinybroker/internal/core"
	tinybrokerv1 "codeberg.org/tinybroker/tinybroker/proto/tinybroker/v1"
)

// rule says who may call a method. What the caller may do with it is judged later, for each topic.
type rule int

const (
	// nobody is for methods without a rule: whoever adds one has to decide.
	nobody rule = iota
	// anyone need not show a credential.
	anyone
	// anyIdentity shows that of any identity.
	anyIdentity
	// publishers may publish to something, subscribers receive something, admins have the admin right.
	publishers
	subscribers
	admins
)

// rules has one for each method of each service.
var rules = map[string]rule{
	tinybrokerv1.BrokerService_Publish_FullMethodName:       publishers,
	tinybrokerv1.BrokerService_PublishStream_FullMethodName: publishers,
	tinybrokerv1.BrokerService_Subscribe_FullMethodName:     subscribers,

	tinybrokerv1.AdminService_Watch_FullMethodName:             admins,
	tinybrokerv1.AdminService_CloseSubscription_FullMethodName: admins,

	// Whoever restarts brokers that are not well asks without a credential, and learns one word.
	healthgrpc.Health_Check_FullMethodName: anyone,
	healthgrpc.Health_List_FullMethodName:  anyIdentity,
	healthgrpc.Health_Watch_FullMethodName: anyIdentity,

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      anyIdentity,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": anyIdentity,
}

// judge returns nil if id may call a method with this rule.
func (r rule) judge(id *auth.Identity) error {
	switch {
	case r == anyone, r == anyIdentity,
		r == publishers && !id.Publish.Nothing(),
		r == subscribers && !id.Subscribe.Nothing(),
		r == admins && id.Admin:
		return nil
	case r == publishers:
		return fmt.Errorf("%w: %s may publish nothing", core.ErrNotAllowed, id.Name)
	case r == subscribers:
		return fmt.Errorf("%w: %s may receive nothing", core.ErrNotAllowed, id.Name)
	case r == admins:
		return fmt.Errorf("%w: %s has no admin right", core.ErrNotAllowed, id.Name)
	}
	return errNoRule
}

var errNoRule = fmt.Errorf("%w: nobody may call this method", core.ErrNotAllowed)
