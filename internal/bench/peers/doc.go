// Command peers measures tinybroker beside NATS core, JetStream and a stock gRPC server: the same messages, the same work for
// each of them in the client, on the same machine, one after the other in turn. It is a module of its own, so that the product
// does not depend on what it is compared with.
//
// Each measurement has a server of its own, freshly started on a loopback port, and the load in a process of its own. The
// servers have their default settings and write nothing to disk. What was started is stopped, also when interrupted.
package main
