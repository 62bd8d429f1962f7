package core

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// checker follows every delivery of a group whose payloads are "key:number" and knows what must not happen.
type checker struct {
	mu      sync.Mutex
	t       testing.TB
	holding map[string]map[int]*Member // by key: what is in flight where, by number
	acked   map[string]map[int]bool
	extra   int // deliveries of what had been acknowledged, which must not be
}

func newChecker(t testing.TB) *checker {
	return &checker{t: t, holding: map[string]map[int]*Member{}, acked: map[string]map[int]bool{}}
}

func splitPayload(p string) (key string, n int) {
	key, number, _ := strings.Cut(p, ":")
	n, _ = strconv.Atoi(number)
	return key, n
}

// delivered checks a message of a keyed topic as it arrives at m.
func (c *checker) delivered(m *Member, payload string) {
	key, n := splitPayload(payload)
	if key == "" {
		return
	}
	for number, other := range c.holding[key] {
		if other != m {
			c.t.Errorf("key %s: message %d goes to another member than message %d, which is in flight", key, n, number)
		}
	}
	if c.holding[key] == nil {
		c.holding[key], c.acked[key] = map[int]*Member{}, map[int]bool{}
	}
	for earlier := n - 1; earlier >= 0 && !c.acked[key][earlier]; earlier-- {
		if c.holding[key][earlier] == nil {
			c.t.Errorf("key %s: message %d is delivered before message %d", key, n, earlier)
		}
	}
	c.holding[key][n] = m
}

func (c *checker) ack(payload string) {
	key, n := splitPayload(payload)
	if c.acked[key] == nil {
		c.acked[key] = map[int]bool{}
	}
	if c.acked[key][n] {
		c.extra++
	}
	c.acked[key][n] = true
	delete(c.holding[key], n)
}

func (c *checker) release(payload string) {
	key, n := splitPayload(payload)
	delete(c.holding[key], n)
}

// churningMember takes, acknowledges, gives back and finally ends in one of several ways.
func (c *checker) churningMember(ctx context.Context, b *Broker, rng *rand.Rand, o JoinOptions) {
	m, err := b.Join(o)
	if err != nil {
		c.t.Error(err)
		return
	}
	life := 1 + rng.IntN(60)
	if rng.IntN(8) == 0 {
		life = 1000
	}
	none := time.Duration(0)
	type held struct {
		sequence uint64
		payload  string
	}
	var inHand []held
	for range life {
		if ctx.Err() != nil {
			break
		}
		// The checker's lock is held across Take, so that what it sees is in the order of what the group does.
		c.mu.Lock()
		g, ok := take(m)
		for i, p := range g.payloads {
			c.delivered(m, p)
			inHand = append(inHand, held{g.first + uint64(i), p})
		}
		c.mu.Unlock()
		if !ok {
			select {
			case <-m.Wake():
			case <-m.Done():
			case <-time.After(time.Millisecond):
			}
		}
		for len(inHand) > 0 && rng.IntN(6) > 0 {
			i := rng.IntN(min(3, len(inHand)))
			h := inHand[i]
			inHand = append(inHand[:i], inHand[i+1:]...)
			r := SequenceRange{h.sequence, h.sequence}
			c.mu.Lock()
			switch rng.IntN(12) {
			case 0:
				c.release(h.payload)
				m.Nack(Nack{Action: NackRelease}, r)
			case 1:
				c.release(h.payload)
				m.Nack(Nack{Delay: &none}, r)
			default:
				c.ack(h.payload)
				m.Ack(r)
				m.Ack(r)
			}
			c.mu.Unlock()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range inHand {
		c.release(h.payload)
	}
	if rng.IntN(3) == 0 {
		m.Left()
	}
	m.Close()
}

// TestMembersComeAndGoUnderLoad loses nothing, keeps every key in order at one member, and balances the books at every
// look at them. TINYBROKER_LONG=1 makes it a million messages for each number of keys.
func TestMembersComeAndGoUnderLoad(t *testing.T) {
	for _, keys := range []int{0, 1, 7, 300} {
		t.Run(fmt.Sprintf("keys=%d", keys), func(t *testing.T) {
			messages, patience := 20_000, 20*time.Second
			if os.Getenv("TINYBROKER_LONG") != "" {
				messages, patience = 1_000_000, 5*time.Minute
			}
			b := newBroker(t, func(o *Options) {
				o.GroupCapacity = 500
				o.MaxAttempts = 1 << 16
				o.GroupLinger = time.Hour
			})
			c := newChecker(t)
			ctx, cancel := context.WithCancel(context.Background())
			var members sync.WaitGroup
			patterns := [][]string{{"job.*"}, {"job.**", "x"}, {"job.a"}}
			for i := range 6 {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(keys)))
				members.Go(func() {
					for ctx.Err() == nil {
						c.churningMember(ctx, b, rng, JoinOptions{
							Group:       "g",
							Patterns:    patterns[i%2],
							MaxInFlight: 1 + rng.IntN(20),
						})
					}
				})
			}
			for len(b.Groups()) == 0 {
				time.Sleep(time.Millisecond)
			}
			publishKeyed(t, b, messages, keys)
			deadline := time.Now().Add(patience)
			for groupStats(t, b, "g").Acked < uint64(messages) && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
			}
			cancel()
			members.Wait()
			st := groupStats(t, b, "g")
			if st.Acked != uint64(messages) || st.Pending != 0 || st.InFlight != 0 || st.DeadLetters != 0 || st.Dropped != 0 {
				t.Errorf("at the end: %+v", st)
			}
			if st.Redelivered == 0 {
				t.Error("nothing was redelivered: the test shows nothing")
			}
			if c.extra > 0 {
				t.Errorf("%d acknowledged messages were delivered again", c.extra)
			}
			total := 0
			for _, numbers := range c.acked {
				total += len(numbers)
			}
			if total != messages {
				t.Errorf("%d different messages acknowledged, want %d", total, messages)
			}
			wantMemory(t, b, 0)
		})
	}
}

// publishKeyed publishes numbered messages, "key:number", on two topics.
func publishKeyed(t testing.TB, b *Broker, n, keys int) {
	rng := rand.New(rand.NewPCG(9, 9))
	next := map[string]int{}
	for sent := 0; sent < n; {
		var posts []post
		for range min(1+rng.IntN(50), n-sent) {
			p := post{topic: []string{"job.a", "job.b"}[rng.IntN(2)]}
			if keys > 0 && rng.IntN(10) > 0 {
				p.key = "k" + strconv.Itoa(rng.IntN(keys))
			}
			p.payload = fmt.Sprintf("%s:%d", p.key, next[p.key])
			next[p.key]++
			posts = append(posts, p)
			sent++
		}
		batch := batchOf(posts...)
		batch.MaxWait = time.Minute
		publishBatch(t, b, batch)
		for i := range batch.Runs {
			if r := batch.Runs[i]; r.Err != nil {
				t.Fatalf("run refused: %+v", r)
			}
		}
	}
}
