// Package rpc puts a core.Broker on the network and is the client for it: gRPC, protobuf, the translation of core's
// errors and types, and nothing of the rules by which messages are delivered. It alone knows generated types and statuses.
//
// # Server
//
// Publishers' frames are scanned, not decoded, and subscribers get the same bytes again. A Publish call takes no
// goroutine but gRPC's. Of the others:
//
//	PublishStream  one reads frames and publishes them; the handler waits for it or for the broker to drain
//	Subscribe      one reads what the subscriber says until it half-closes, one sends; the handler decides about the end
//	reflection     one runs gRPC's handler; ours waits for it or for the broker to drain
//	Health.Check   one runs the handler, which is not waited for when the request does not come
//	the server     one notes the counters once a second, until the broker drains
//
// Every call passes guardStream, unary ones too (requestsLate), which asks access whether it may be made. A call that is let in has a session, and a
// session may be revoked: handlers that stay wait for that as well.
//
// gRPC ends a blocked read or write of a stream when, and only when, the handler has returned. So handlers never
// block in either, and the goroutines they have started end soon after them. Server.Shutdown waits for all.
package rpc
