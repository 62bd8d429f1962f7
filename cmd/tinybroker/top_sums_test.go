//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// once is what `top --once -o json` prints.
func (b *broker) once(args ...string) *snapshotJSON {
	b.t.Helper()
	p := start(b.t, append([]string{"top", "--once", "-o", "json", "-s", b.address}, args...))
	p.ended(0)
	var snap snapshotJSON
	if err := json.Unmarshal([]byte(p.stdout.String()), &snap); err != nil {
		b.t.Fatalf("%v in %s", err, p.stdout.String())
	}
	if strings.Count(p.stdout.String(), "\n") != 1 {
		b.t.Errorf("not one line: %q", p.stdout.String())
	}
	return &snap
}

func lines(p *process) uint64 { return uint64(strings.Count(p.stdout.String(), "\n")) }

// A broadcast of five topics, a group of three of which one does not get on, and a subscriber that stands still until it is
// evicted: what top says is what the programs really sent, received and acknowledged, and what was lost.
func TestTopSums(t *testing.T) {
	t.Parallel()
	const news, jobs, size = 5 * 400, 300, 4 << 10
	b := startBroker(t)
	reader := b.sub([]string{"news.*", "--id", "reader", "--client-name", "dashboard"})
	stopped := b.sub([]string{"news.**", "--id", "stopped", "--client-name", "frozen", "--capacity", "100", "--exit-on-evict"})
	workers := []*process{
		b.sub([]string{"jobs.*", "-g", "workers", "--id", "m1", "--client-name", "worker-1"}),
		b.sub([]string{"jobs.*", "-g", "workers", "--id", "m2", "--client-name", "worker-2"}),
	}
	slow := b.sub([]string{"jobs.*", "-g", "workers", "--id", "slow", "--client-name", "worker-3", "--max-in-flight", "5", "-x", "sleep 100", "--grace", "10ms"})
	t.Cleanup(func() { // it takes its command with it
		slow.signal(syscall.SIGTERM)
		slow.end()
	})
	stopped.signal(syscall.SIGSTOP)

	payload := strings.Repeat("x", size)
	for i := range 5 {
		b.pub("", fmt.Sprintf("news.%d", i), payload, "-n", fmt.Sprint(news/5), "--max-wait", "0")
	}
	b.pub("", "jobs.build", "x", "-n", fmt.Sprint(jobs))
	eventually(t, "the one that stands still is evicted", func() bool { return b.once().Broker.Evictions == 1 })
	stopped.signal(syscall.SIGCONT) // it reads what had been written to it, and that it was evicted
	stopped.ended(exitRetry)
	eventually(t, "everything is read and acknowledged", func() bool {
		snap := b.once()
		g := (*snap.Groups)[0]
		return snap.Broker.Topics == 6 && // counted once a second
			lines(reader) == news && g.Pending == 0 && g.InFlight > 0 && lines(workers[0])+lines(workers[1]) == g.Acked
	})

	snap := b.once()
	if snap.SchemaVersion != 1 || snap.Address != b.address || snap.Time.IsZero() || snap.GapSeconds != 0 {
		t.Errorf("%+v", snap)
	}
	var in, out, inBytes uint64
	for _, topic := range *snap.Topics {
		in, out, inBytes = in+topic.In, out+topic.Out, inBytes+topic.InBytes
		if want := uint64(news / 5); strings.HasPrefix(topic.Topic, "news.") && topic.In != want {
			t.Errorf("%s: %d in, want %d", topic.Topic, topic.In, want)
		}
	}
	all := &snap.Broker
	if in != news+jobs || in != all.Published || inBytes != all.PublishedBytes || inBytes < news*size || len(*snap.Topics) != 6 || all.Topics != 6 {
		t.Errorf("%d messages and %d bytes on %d topics; the broker says %d and %d; %d were published", in, inBytes, len(*snap.Topics), all.Published, all.PublishedBytes, news+jobs)
	}

	if len(*snap.Groups) != 1 || len(*snap.Members) != 3 || len(*snap.Subscriptions) != 4 || len(*snap.Evictions) != 1 {
		t.Fatalf("%d groups, %d members, %d subscriptions, %d evictions", len(*snap.Groups), len(*snap.Members), len(*snap.Subscriptions), len(*snap.Evictions))
	}
	g := (*snap.Groups)[0]
	if g.Accepted != jobs || g.Members != 3 || g.Acked+uint64(g.InFlight) != jobs || g.Dropped+g.DeadLetters+g.Redelivered != 0 || g.Delivered != jobs {
		t.Errorf("group %+v", g)
	}
	acked := map[string]uint64{}
	for _, m := range *snap.Members {
		acked[m.ID] = m.Acked
		if wantInFlight := m.ID == "slow"; (m.InFlight > 0) != wantInFlight || wantInFlight && m.InFlight != g.InFlight {
			t.Errorf("member %+v", m)
		}
	}
	if acked["m1"] != lines(workers[0]) || acked["m2"] != lines(workers[1]) || acked["slow"] != 0 {
		t.Errorf("acknowledged %v; printed %d and %d", acked, lines(workers[0]), lines(workers[1]))
	}

	e := (*snap.Evictions)[0]
	if e.ID != "stopped" || e.Client != "frozen" || e.Reason != "evicted" || e.Text != "queue full (100)" || e.Lost == 0 || e.Lost != all.Lost || uint64(e.Queued) > e.Lost || e.Queued == 0 {
		t.Errorf("eviction %+v; the broker lost %d", e, all.Lost)
	}
	if want := news + lines(stopped) + g.Delivered; all.Delivered != want || all.Dropped != 0 || all.Unrouted != 0 || all.Queued != 0 {
		t.Errorf("%d delivered, %d dropped, %d unrouted, %d queued; the programs received %d", all.Delivered, all.Dropped, all.Unrouted, all.Queued, want)
	}
	// What was queued for the one that was evicted is what it received and what waited, and maybe what was just being written.
	if meant := out - news - jobs; meant < lines(stopped)+uint64(e.Queued) || meant > lines(stopped)+e.Lost {
		t.Errorf("%d messages queued for the stopped one; it received %d, %d waited, %d were lost", meant, lines(stopped), e.Queued, e.Lost)
	}

	s := startTop(t, 120, 40, []string{"top", "-s", b.address, "--view", "groups"})
	s.shows("workers", fmt.Sprintf("%d", g.InFlight), "slow", "worker-3")
	s.keys("\r")
	s.shows("members of workers", "m1", "m2", "> slow")
	s.keys("2")
	s.shows("[2 Topics 6]", "news.0", "news.1", "news.2", "news.3", "news.4", "jobs.build")
	s.keys("3")
	s.shows("[3 Subs 4]", "reader", "dashboard", "m1", "m2", "slow")
	s.keys("5")
	s.shows("[5 Evict 1]", "stopped", "frozen", "queue full", "news.**")
	s.keys("\r")
	s.shows("queue full (100)", fmt.Sprintf("%d messages", e.Lost))
	s.keys("1")
	s.shows("news.0", "group of 3", "stopped")
	s.keys("q")
	s.process.ended(0)
}
