package core

// Expired is a group that has gone since no member came back in time, or what it held for members with some patterns while it goes on.
type Expired struct {
	Group    string
	Patterns []string // of the members that did not come back; nil: the whole group has gone
	Dropped  int      // messages that went with it
}

// OnExpired has f called for whatever expires from now on. f is called without locks, in any goroutine.
func (b *Broker) OnExpired(f func(Expired)) { b.onExpired.Store(&f) }

// tellExpired tells what has gone: lanes, with their group if that has ended. No lock may be held.
func (g *group) tellExpired(gone []*lane, ended bool) {
	if len(gone) == 0 {
		return
	}
	b := g.broker
	whole := Expired{Group: g.name}
	for _, l := range gone {
		whole.Dropped += l.lost
		if !ended {
			e := Expired{Group: g.name, Patterns: l.patterns.Strings(), Dropped: l.lost}
			b.emit("group.lane_expired", laneEvent(e))
			b.notify(e)
		}
	}
	if ended {
		b.emit("group.expired", groupEvent{Group: g.name, Dropped: g.stats(nil).Dropped})
		b.notify(whole)
	}
}

func (b *Broker) notify(e Expired) {
	if f := b.onExpired.Load(); f != nil {
		(*f)(e)
	}
}
