//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// TestChurn sends numbers through a group of four while, every 200 ms, a member is killed, thrown out by the broker, stopped for
// a while, or ended and replaced. Every number is acknowledged, none is lost, and only what was in flight at a member that did not
// end cleanly is printed twice. At every look, the broker's books balance.
//
// TINYBROKER_LONG=1 sends a million.
func TestChurn(t *testing.T) {
	t.Parallel()
	n, rate := 16_000, 8_000
	if os.Getenv("TINYBROKER_LONG") != "" {
		n, rate = 1_000_000, 20_000
	}
	b := startBroker(t)
	client, err := rpc.Dial(t.Context(), rpc.ClientOptions{Target: b.address})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c := &churn{t: t, b: b, client: client}
	for range 4 {
		c.join(true)
	}
	stopWatch := c.watchBooks()
	began := time.Now()
	pub := start(t, []string{"pub", "job", "-s", b.address, "-r", fmt.Sprint(rate), "--max-wait", "1m"}, reading(strings.NewReader(seq(1, n))))
	for ticks := time.Tick(200 * time.Millisecond); !ended(pub); {
		<-ticks
		c.disturb()
	}
	pub.ended(0)
	for _, m := range c.present {
		m.signal(syscall.SIGCONT)
	}
	g := b.wantBooks("g", uint64(n), 0)
	took := time.Since(began)
	stopWatch()
	for _, m := range c.present {
		m.signal(syscall.SIGTERM)
	}
	for _, m := range c.all {
		m.end()
	}
	twice := c.check(n)
	t.Logf("%d messages in %v: %d killed, %d thrown out, %d stopped, %d replaced; %d redelivered, %d printed twice",
		n, took.Round(time.Millisecond), c.kills, c.kicks, c.stops, c.replaced, g.Redelivered, twice)
	if g.Expired != 0 {
		t.Errorf("%d deliveries expired", g.Expired)
	}
	if c.kills+c.kicks+c.stops+c.replaced < 5 {
		t.Error("too few events to mean anything")
	}
}

func ended(p *process) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// churn is a group and what happens to its members.
type churn struct {
	t      *testing.T
	b      *broker
	client *rpc.Client

	all, present []*churned
	stopped      *churned // since the last event

	kills, kicks, stops, replaced int
}

// churned is a member and how it fared.
type churned struct {
	*process
	id    string
	crash bool // it did not end cleanly
}

// join starts a member.
func (c *churn) join(wait bool) {
	m := &churned{id: fmt.Sprintf("m%d", len(c.all))}
	if args := []string{"job", "--id", m.id}; wait {
		m.process = c.b.member(args)
	} else {
		m.process = start(c.t, append([]string{"sub", "-g", "g", "-s", c.b.address}, args...))
	}
	c.all = append(c.all, m)
	c.present = append(c.present, m)
}

// disturb does something to one member.
func (c *churn) disturb() {
	if m := c.stopped; m != nil {
		c.stopped = nil
		m.signal(syscall.SIGCONT)
		return
	}
	i := rand.IntN(len(c.present))
	m := c.present[i]
	switch rand.IntN(4) {
	case 0:
		c.kills++
		m.crash = true
		m.signal(syscall.SIGKILL)
	case 1:
		err := c.client.CloseSubscription(c.t.Context(), m.id)
		if errors.Is(err, core.ErrNotFound) {
			return // it has not joined yet
		}
		if err != nil {
			c.t.Error(err)
		}
		c.kicks++
		m.crash = true
	case 2:
		c.stops++
		c.stopped = m
		m.signal(syscall.SIGSTOP)
		return
	case 3:
		c.replaced++
		m.signal(syscall.SIGTERM)
	}
	c.present = slices.Delete(c.present, i, i+1)
	c.join(false)
}

// watchBooks looks at the group again and again: its books balance, and it never stands still with messages waiting.
func (c *churn) watchBooks() (stop func()) {
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		delivered, since := uint64(0), time.Now()
		err := c.client.Watch(ctx, core.Query{View: core.ViewGroups}, 250*time.Millisecond, func(s *core.Snapshot) error {
			if len(s.Groups) != 1 {
				return fmt.Errorf("%d groups", len(s.Groups))
			}
			g := s.Groups[0]
			if g.Pending < 0 || g.InFlight < 0 || g.Accepted != g.Acked+g.DeadLetters+g.Dropped+uint64(g.Pending+g.InFlight) {
				c.t.Errorf("the books do not balance: %+v", g)
			}
			if g.Delivered != delivered || g.Pending == 0 {
				delivered, since = g.Delivered, time.Now()
			}
			if time.Since(since) > 5*time.Second {
				return fmt.Errorf("nothing delivered for 5 s: %+v", g)
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			c.t.Error(err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// check looks for every number in what was printed, and returns how many were printed more than once.
func (c *churn) check(n int) (twice int) {
	const inFlight = 64
	clean := make([]int, n+1)   // printed by members that acknowledged it
	excused := make([]int, n+1) // printed by members that were ended before they could
	for _, m := range c.all {
		printed := numbers(c.t, m.process)
		for i, number := range printed {
			if m.crash && i >= len(printed)-inFlight {
				excused[number]++
			} else {
				clean[number]++
			}
		}
	}
	for number := 1; number <= n; number++ {
		if clean[number]+excused[number] > 1 {
			twice++
		}
		switch {
		case clean[number]+excused[number] == 0:
			c.t.Errorf("%d is lost", number)
		case clean[number] > 1:
			c.t.Errorf("%d was acknowledged by %d members", number, clean[number])
		}
	}
	if most := (c.kills + c.kicks) * inFlight; twice > most {
		c.t.Errorf("%d printed twice, at most %d could have been in flight", twice, most)
	}
	return twice
}
