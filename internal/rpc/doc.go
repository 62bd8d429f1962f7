// Package rpc puts a core.Broker on the network and is the client for it: gRPC, protobuf, the translation of core's
// errors and types, and nothing of the rules by which messages are delivered. It alone knows generated types and statuses.
//
// # Server
//
// Publishers' frames are scanned, not decoded, and subscribers get the same bytes again. The goroutines beside gRPC's:
//
//	Publish            one reads the request, if it is not whole when the handler asks for it; the handler waits for it, or gives the call up;
//	                   and one sees whether the right to the call is withdrawn while a message waits for room
//	PublishStream      one reads frames and publishes them; the handler waits for it or for the broker to drain
//	Subscribe          one reads the first request and one registers the subscription; then one reads what the subscriber says until it
//	                   half-closes, and one sends; the handler decides about the end
//	reflection, Watch  one runs the handler; ours waits for it or for the broker to drain
//	Health.Check       one runs the handler, which is not waited for when the request does not come
//	the server         one notes the counters once a second and closes connections that have gone quiet, until the broker drains
//
// Every call passes guardStream, unary ones too (requestsLate), which asks access whether it may be made. A call that is let in has a session, and a
// session may be revoked: handlers that stay wait for that as well.
//
// gRPC ends a blocked read or write of a stream when, and only when, the handler has returned. So handlers never
// block in either, and the goroutines they have started end soon after them. Server.Shutdown waits for all but the
// one that looks after the right to a call, which has nothing to do once the handler has returned.
package rpc
