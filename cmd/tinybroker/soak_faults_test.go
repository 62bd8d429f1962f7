//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// populate brings everybody who takes part.
func (s *soak) populate() {
	for _, name := range []string{"publishers", "subscribers", "members", "more members"} {
		s.links = append(s.links, newSoakLink(s.t, name, s.direct))
	}
	s.letters = &soakLetters{s: s, client: s.dial(s.direct), got: map[string]map[soakMark]int{}}
	s.running.Go(func() { s.letters.run(s.ctx) })

	listen := func(id, address string, overflow core.OverflowPolicy, capacity uint32, slow bool) {
		l := &soakListener{s: s, client: s.dial(address), slow: slow, options: rpc.SubscribeOptions{
			ID: id, Patterns: []string{"soak.**"}, Overflow: overflow, Capacity: capacity,
		}}
		s.listeners = append(s.listeners, l)
		s.running.Go(func() { l.run(s.ctx) })
	}
	listen("undisturbed", s.direct, core.OverflowEvict, 0, false)
	listen("evicted-when-slow", s.direct, core.OverflowEvict, 40, true)
	listen("drops-oldest", s.direct, core.OverflowDropOldest, 40, true)
	listen("drops-newest", s.direct, core.OverflowDropNewest, 40, true)
	listen("far", s.links[1].address(), core.OverflowEvict, 0, false)
	listen("far-drops-oldest", s.links[1].address(), core.OverflowDropOldest, 100, false)

	keyed := s.book(soakGroup{name: "keyed", rejects: true, takes: allOfSoak})
	s.join(keyed, "keyed-near", s.direct, rpc.SubscribeOptions{}, 2*time.Millisecond, true)
	s.join(keyed, "keyed-far", s.links[2].address(), rpc.SubscribeOptions{}, 2*time.Millisecond, true)
	s.join(keyed, "keyed-farther", s.links[3].address(), rpc.SubscribeOptions{}, 2*time.Millisecond, false)
	none := s.book(soakGroup{name: "none", none: true, takes: allOfSoak})
	s.join(none, "none-1", s.direct, rpc.SubscribeOptions{Ack: core.AckNone}, 0, false)
	s.join(none, "none-2", s.direct, rpc.SubscribeOptions{Ack: core.AckNone}, 0, false)
	full := s.book(soakGroup{name: "full", takes: func(topic string) bool { return topic == soakFullTopic }})
	s.join(full, "full-1", s.direct, rpc.SubscribeOptions{Patterns: []string{soakFullTopic}, Capacity: 50}, 40*time.Millisecond, false)

	printed := s.book(soakGroup{name: "printed", takes: allOfSoak})
	file := newSoakFile(s, "printed")
	for i := range 3 {
		s.print(&soakPrinter{s: s, id: fmt.Sprintf("printer-%d", i), address: s.direct, file: file, book: printed, args: []string{"-g", "printed"}})
	}
	for i, address := range []string{s.direct, s.links[1].address()} {
		id := fmt.Sprintf("reader-%d", i)
		s.print(&soakPrinter{s: s, id: id, address: address, file: newSoakFile(s, id), args: []string{"--capacity", "500"}})
	}
	s.populatePublishers()
	s.t.Cleanup(s.end)
}

func allOfSoak(topic string) bool { return strings.HasPrefix(topic, "soak.") }

// soakTopics spread a sender's numbers over topics of its own, and the one that is shared.
func soakTopics(name string) func(n int) string {
	return func(n int) string {
		if n%3 == 0 {
			return soakSharedTopic
		}
		return fmt.Sprintf("soak.%s.%d", name, n%7)
	}
}

func (s *soak) populatePublishers() {
	publish := func(p *soakPublisher) {
		p.s, p.rng = s, rand.New(rand.NewPCG(s.seed, uint64(100+len(s.publishers))))
		s.publishers = append(s.publishers, p)
		s.running.Go(func() { p.run(s.ctx) })
	}
	stream := func(sender *soakSender, address string) soakWay {
		way, err := newStreamWay(s, address, sender)
		if err != nil {
			s.t.Fatal(err)
		}
		return way
	}
	unary := s.addSender("unary", soakTopics("unary"))
	publish(&soakPublisher{soakSender: unary, way: &unaryWay{s.dial(s.links[0].address()), unary}, rate: 25, keys: 5})
	far := s.addSender("far", soakTopics("far"))
	publish(&soakPublisher{soakSender: far, way: stream(far, s.links[0].address()), rate: 40, burst: 300, fat: 8 << 10, keys: 20})
	near := s.addSender("near", soakTopics("near"))
	publish(&soakPublisher{soakSender: near, way: stream(near, s.direct), rate: 40, burst: 400, fat: 500, keys: 20})
	full := s.addSender("full", func(int) string { return soakFullTopic })
	publish(&soakPublisher{soakSender: full, way: stream(full, s.direct), rate: 15, burst: 150, fat: 100})
	for range 2 {
		p := &soakPublisher{rate: 25, burst: 100, fat: 200, keys: 5}
		s.newCLI(p)
		publish(p)
	}
}

// newCLI gives p a new process and a new name.
func (s *soak) newCLI(p *soakPublisher) {
	s.processes++
	name := fmt.Sprintf("cli%d", s.processes)
	p.soakSender = s.addSender(name, soakTopics(name))
	p.way = newCLIWay(s, s.links[0].address(), p.soakSender)
}

func (s *soak) dial(address string) *rpc.Client {
	c, err := rpc.Dial(s.ctx, s.tls.options(rpc.ClientOptions{Target: address}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.clients = append(s.clients, c)
	return c
}

func (s *soak) book(g soakGroup) *soakBook {
	b := &soakBook{group: g}
	s.books = append(s.books, b)
	return b
}

func (s *soak) join(b *soakBook, id, address string, o rpc.SubscribeOptions, work time.Duration, fickle bool) {
	o.ID, o.Group = id, b.group.name
	if o.Patterns == nil {
		o.Patterns = []string{"soak.**"}
	}
	m := &soakMember{s: s, client: s.dial(address), options: o, book: b, work: work, fickle: fickle}
	s.members = append(s.members, m)
	s.running.Go(func() { m.run(s.ctx) })
}

func (s *soak) print(p *soakPrinter) {
	s.printers = append(s.printers, p)
	p.start()
}

// storm does damage for a while. In two of three rounds the broker ends in it, violently or in order.
func (s *soak) storm(round int) {
	end := time.Now().Add(12 * time.Second)
	restart := time.Now().Add(time.Duration(3+s.rng.IntN(6)) * time.Second)
	kinds := []func(){nil, s.killBroker, s.stopBroker}
	broker := kinds[round%len(kinds)]
	var undo []func()
	for time.Now().Before(end) && !s.t.Failed() {
		time.Sleep(time.Duration(50+s.rng.IntN(350)) * time.Millisecond)
		if broker != nil && time.Now().After(restart) {
			broker()
			broker = nil
		}
		if len(undo) > 0 && s.rng.IntN(3) == 0 {
			undo[0]()
			undo = undo[1:]
		}
		if back := s.damage(); back != nil {
			undo = append(undo, back)
		}
		for _, p := range s.printers {
			p.poll()
		}
		s.noteGroups()
	}
	for _, back := range undo {
		back()
	}
}

// noteGroups takes note of the groups that are back after an end of the broker.
func (s *soak) noteGroups() {
	if len(s.stops) == 0 || len(s.stops[len(s.stops)-1].back) == len(s.books) {
		return
	}
	for _, g := range s.stats().Groups {
		back := s.stops[len(s.stops)-1].back
		if _, known := back[g.Name]; !known && g.Members > 0 {
			back[g.Name] = time.Now()
		}
	}
}

// damage does one thing, and returns what takes it back; nil: nothing is to be taken back.
func (s *soak) damage() (back func()) {
	k := s.links[s.rng.IntN(len(s.links))]
	switch s.rng.IntN(15) {
	case 0:
		return s.hurt(k, "black hole, both ways", linkSwallow, linkSwallow)
	case 1:
		return s.hurt(k, "black hole to the broker", linkSwallow, linkPass)
	case 2:
		return s.hurt(k, "black hole from the broker", linkPass, linkSwallow)
	case 3:
		return s.hurt(k, "stalled connections", linkStall, linkStall)
	case 4:
		return s.hurt(k, "slow connections", linkDelay, linkDelay)
	case 5:
		return s.hurt(k, "cut amid a frame", linkCut, linkCut)
	case 6:
		s.count("connections reset")
		s.spoilBehind(k)
		k.cutAll()
	case 7:
		s.count("subscriber killed")
		s.randomPrinter().replace(syscall.SIGKILL)
	case 8:
		s.count("subscriber ended and started again")
		s.randomPrinter().replace(syscall.SIGTERM)
	case 9:
		return s.stopPrinter(s.randomPrinter())
	case 10:
		s.kick()
	case 11:
		s.killPublisher()
	case 12:
		s.nonsense()
	case 13:
		s.comeAndGo()
	case 14:
		s.reload()
	}
	return nil
}

// hurt makes a link misbehave.
func (s *soak) hurt(k *soakLink, what string, up, down soakMode) (back func()) {
	s.count(what)
	s.spoilBehind(k)
	k.set(up, down)
	return func() {
		s.spoilBehind(k) // also those who have come meanwhile
		k.heal()
	}
}

// spoilBehind takes note that the members behind a link may be unable to acknowledge.
func (s *soak) spoilBehind(k *soakLink) {
	for i, m := range s.members {
		if s.links[2] == k && m.options.ID == "keyed-far" || s.links[3] == k && m.options.ID == "keyed-farther" {
			s.members[i].spoil()
		}
	}
}

func (s *soak) randomPrinter() *soakPrinter {
	p := s.printers[s.rng.IntN(len(s.printers))]
	s.resume(p)
	return p
}

func (s *soak) stopPrinter(p *soakPrinter) (back func()) {
	s.count("subscriber stopped for a while")
	p.spoil()
	p.signal(syscall.SIGSTOP)
	p.stopped = true
	stopped := p.process
	return func() {
		if p.process == stopped {
			s.resume(p)
		}
	}
}

// resume lets a stopped process go on.
func (s *soak) resume(p *soakPrinter) {
	if p.stopped {
		p.stopped = false
		p.signal(syscall.SIGCONT)
	}
}

// kick ends a subscription as an operator does. Those of processes end the process.
func (s *soak) kick() {
	if s.rng.IntN(2) == 0 {
		l := s.listeners[1+s.rng.IntN(len(s.listeners)-1)]
		if s.client.CloseSubscription(s.ctx, l.id()) == nil {
			s.count("subscription closed by an operator")
		}
		return
	}
	p := s.randomPrinter()
	p.spoil()
	if p.address != s.direct || s.client.CloseSubscription(s.ctx, p.id) != nil {
		return
	}
	select {
	case <-p.done:
		s.count("subscription closed by an operator")
		p.start()
	case <-time.After(2 * time.Second): // it was the one before, which had just been killed
	}
}

// killPublisher kills or stops a publishing process.
func (s *soak) killPublisher() {
	for _, i := range s.rng.Perm(len(s.publishers)) {
		p := s.publishers[i]
		way, ok := p.way.(*cliWay)
		if !ok {
			continue
		}
		if s.rng.IntN(3) > 0 {
			s.count("publisher stopped for a while")
			way.signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
			way.signal(syscall.SIGCONT)
			return
		}
		s.count("publisher killed")
		way.kill() // whoever is just writing to it gets an error
		p.turn.Lock()
		s.newCLI(p)
		p.turn.Unlock()
		return
	}
}

// nonsense connects and says what no client says, or nothing.
func (s *soak) nonsense() {
	s.count("connections that talk nonsense")
	for range 5 {
		conn, err := net.Dial("tcp", s.direct)
		if err != nil {
			return // the broker is just not there
		}
		b := make([]byte, s.rng.IntN(300))
		for i := range b {
			b[i] = byte(s.rng.Uint32())
		}
		if s.rng.IntN(2) == 0 {
			b = append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), b...)
		}
		conn.Write(b)
		if s.rng.IntN(2) == 0 {
			reset(conn)
		} else {
			time.AfterFunc(time.Second, func() { conn.Close() })
		}
	}
}

// comeAndGo opens subscriptions and leaves them in the lurch.
func (s *soak) comeAndGo() {
	s.count("subscriptions that come and go")
	client, err := rpc.Dial(s.ctx, s.tls.options(rpc.ClientOptions{Target: s.direct}))
	if err != nil {
		return
	}
	defer client.Close()
	for i := range 20 {
		ctx, cancel := context.WithTimeout(s.ctx, time.Duration(s.rng.IntN(30))*time.Millisecond)
		_ = client.Subscribe(ctx, rpc.SubscribeOptions{Patterns: []string{fmt.Sprintf("soak.%d.*", i), "soak.shared"}}, func(*rpc.Delivery) error { return nil })
		cancel()
	}
}

// killBroker is its violent end.
func (s *soak) killBroker() {
	s.count("broker killed and started again")
	s.stops = append(s.stops, soakStop{at: time.Now()})
	s.b.signal(syscall.SIGKILL)
	<-s.b.done
	s.restart()
}

// stopBroker ends it in order. If it says that everything was delivered, everything was.
func (s *soak) stopBroker() {
	s.count("broker stopped and started again")
	before := map[string]int{}
	for name, f := range s.fates() {
		if f.confirmed > f.base && !f.refused[f.confirmed] {
			before[name] = f.confirmed
		}
	}
	stop := soakStop{at: time.Now()}
	s.b.signal(syscall.SIGTERM)
	s.b.ended(0)
	if took := time.Since(stop.at); took > 12*time.Second {
		s.fault("the broker took %v to stop", took)
	}
	said := s.b.stderr.String()
	stop.clean = !strings.Contains(said, "stopped before everything was delivered")
	s.stops = append(s.stops, stop)
	s.t.Logf("the broker stopped within %v, clean: %v", time.Since(stop.at).Round(time.Millisecond), stop.clean)
	undisturbed := s.listeners[0]
	s.await("what was confirmed before SIGTERM has come", func() bool { return undisturbed.reached(before) })
	s.restart()
}

// restart starts the broker after its end, of which nobody took leave.
func (s *soak) restart() {
	s.checkSaid()
	for _, m := range s.members {
		m.spoil()
	}
	for _, p := range s.printers {
		p.spoil()
	}
	s.startBroker()
	stop := &s.stops[len(s.stops)-1]
	stop.ended, stop.back = time.Now(), map[string]time.Time{}
}
