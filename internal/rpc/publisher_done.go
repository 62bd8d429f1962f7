package rpc

// Done is closed when the publisher has ended: it was closed, or it has given up, and Close returns why.
func (p *Publisher) Done() <-chan struct{} { return p.done }
