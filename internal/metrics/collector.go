package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

const namespace = "tinybroker_"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+name, help, labels, nil)
}

var (
	published      = desc("published_messages_total", "Messages accepted from publishers.")
	publishedBytes = desc("published_bytes_total", "Size of the accepted messages as they were encoded, in bytes.")
	refused        = desc("refused_messages_total", "Messages not accepted, by reason.", "reason")
	unrouted       = desc("unrouted_messages_total", "Accepted messages that nobody was subscribed to.")
	matched        = desc("matched_messages_total", "Messages meant for a receiver, counted for each: broadcast subscriptions, or consumer groups.", "mode")
	delivered      = desc("delivered_messages_total", "Messages written to subscribers, to broadcast subscriptions or to members of groups; redeliveries count again.", "mode")
	deliveredBytes = desc("delivered_bytes_total", "Size of the delivered messages as they were encoded, in bytes.")
	dropped        = desc("dropped_messages_total", "Messages meant for a receiver that it will never get, by reason.", "reason")
	evictions      = desc("evictions_total", "Subscriptions and members that the broker ended for being slow, by reason.", "reason")
	opened         = desc("subscriptions_opened_total", "Subscriptions and members that were opened.")
	ended          = desc("subscriptions_ended_total", "Subscriptions and members that have ended, by reason.", "reason")
	latency        = desc("delivery_latency_seconds", "Time from a message's arrival to its being written to a subscriber's stream. Sampled by frame: "+
		"the first message of each frame that is written counts, redeliveries do not.")

	subscriptions = desc("subscriptions", "Subscriptions there are, members of groups included.")
	groups        = desc("groups", "Consumer groups there are.")
	topics        = desc("topics", "Topics that were published to lately; the broker follows a bounded number.")
	connections   = desc("connections", "Connections of clients.")
	connLimit     = desc("connections_limit", "The most connections there may be: max_connections for each listen address.")
	connWaiting   = desc("connections_waiting", "Listen addresses at which connections wait for others to go, since max_connections is reached.")
	queued        = desc("queued_messages", "Messages that wait in the queues of subscriptions and groups; one counts in each.")
	queuedBytes   = desc("queued_bytes", "Memory that messages in queues, in flight or being written take, in bytes; shared ones count once.")
	memoryLimit   = desc("memory_limit_bytes", "The most that queued_bytes may be before publishes are refused: max_memory.")
	started       = desc("start_time_seconds", "When the broker was started, in seconds since 1970.")
	buildInfo     = desc("build_info", "What is running; always 1.", "version", "go_version")

	acked         = desc("acked_messages_total", "Messages that members of groups have acknowledged, or that were written where no acks are asked for.")
	redelivered   = desc("redelivered_messages_total", "Deliveries to members of a group that were not a message's first.", "group")
	deadLetters   = desc("dead_letters_total", "Messages of a group that had all their attempts, or were rejected.", "group")
	groupMatched  = desc("group_matched_messages_total", "Messages meant for a group.", "group")
	groupAcked    = desc("group_acked_messages_total", "Messages that the members of a group have acknowledged.", "group")
	groupDropped  = desc("group_dropped_messages_total", "Messages of a group that its overflow policy dropped, or that went with it.", "group")
	groupPending  = desc("group_pending", "Messages that wait in a group.", "group")
	groupInFlight = desc("group_in_flight", "Messages that members of a group have and have not acknowledged.", "group")
	groupMembers  = desc("group_members", "Members of a group.", "group")
)

var all = []*prometheus.Desc{
	published, publishedBytes, refused, unrouted, matched, delivered, deliveredBytes, dropped, evictions, opened, ended, latency,
	subscriptions, groups, topics, connections, connLimit, connWaiting, queued, queuedBytes, memoryLimit, started, buildInfo,
	acked, redelivered, deadLetters, groupMatched, groupAcked, groupDropped, groupPending, groupInFlight, groupMembers,
}

// brokerCollector shows a broker.
type brokerCollector struct {
	broker Broker
	server Server
	build  Build

	mu    sync.Mutex // one scrape after the other
	names groupNames
}

func newBrokerCollector(broker Broker, server Server, build Build) *brokerCollector {
	return &brokerCollector{broker: broker, server: server, build: build, names: newGroupNames()}
}

// Describe implements prometheus.Collector.
func (c *brokerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range all {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *brokerCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tally, stats := c.broker.Tally(), c.broker.Stats()
	c.collectTotals(ch, &tally, &stats)
	c.collectGauges(ch, &stats)
	c.names.update(tally.Groups, tally.GroupTotals)
	c.collectGroups(ch)
}

func (c *brokerCollector) collectTotals(ch chan<- prometheus.Metric, t *core.Tally, st *core.Stats) {
	ch <- counter(published, st.Published)
	ch <- counter(publishedBytes, st.PublishedBytes)
	ch <- counter(unrouted, st.Unrouted)
	ch <- counter(matched, t.Matched, "broadcast")
	ch <- counter(matched, t.GroupTotals.Accepted, "group")
	ch <- counter(delivered, t.DeliveredBroadcast, "broadcast")
	ch <- counter(delivered, t.DeliveredGroup, "group")
	ch <- counter(deliveredBytes, st.DeliveredBytes)
	ch <- counter(opened, t.Opened)
	ch <- counter(acked, t.GroupTotals.Acked)
	for desc, counts := range map[*prometheus.Desc][]core.Count{refused: t.Refused, dropped: t.Dropped, evictions: t.Evictions, ended: t.Ended} {
		for _, n := range counts {
			ch <- counter(desc, n.N, n.Reason)
		}
	}
	ch <- histogram(latency, &t.Latency)
}

func (c *brokerCollector) collectGauges(ch chan<- prometheus.Metric, st *core.Stats) {
	ch <- gauge(subscriptions, float64(st.Subscriptions))
	ch <- gauge(groups, float64(st.Groups))
	ch <- gauge(topics, float64(st.Topics))
	ch <- gauge(connections, float64(c.server.Connections()))
	ch <- gauge(connLimit, float64(c.server.ConnectionLimit()))
	ch <- gauge(connWaiting, float64(c.server.ConnectionsWaiting()))
	ch <- gauge(queued, float64(st.QueuedMessages))
	ch <- gauge(queuedBytes, float64(st.Memory))
	ch <- gauge(memoryLimit, float64(st.MaxMemory))
	ch <- gauge(started, float64(st.Started.UnixMilli())/1000)
	ch <- gauge(buildInfo, 1, c.build.Version, c.build.GoVersion)
}

func (c *brokerCollector) collectGroups(ch chan<- prometheus.Metric) {
	c.names.visit(func(name string, n groupCounts) {
		ch <- counter(redelivered, n.redelivered, name)
		ch <- counter(deadLetters, n.deadLetters, name)
		ch <- counter(groupMatched, n.matched, name)
		ch <- counter(groupAcked, n.acked, name)
		ch <- counter(groupDropped, n.dropped, name)
	}, func(name string, n groupGauges) {
		ch <- gauge(groupPending, float64(n.pending), name)
		ch <- gauge(groupInFlight, float64(n.inFlight), name)
		ch <- gauge(groupMembers, float64(n.members), name)
	})
}

func counter(d *prometheus.Desc, n uint64, labels ...string) prometheus.Metric {
	return constant(d, prometheus.CounterValue, float64(n), labels)
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return constant(d, prometheus.GaugeValue, v, labels)
}

// constant never panics: what cannot be shown makes the scrape fail, and nothing else.
func constant(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels []string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(d, kind, v, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(d, err)
	}
	return m
}

func histogram(d *prometheus.Desc, l *core.LatencyStats) prometheus.Metric {
	buckets := make(map[float64]uint64, len(l.Bounds))
	var sum uint64
	for i, n := range l.Counts {
		sum += n
		if i < len(l.Bounds) {
			buckets[l.Bounds[i].Seconds()] = sum
		}
	}
	m, err := prometheus.NewConstHistogram(d, sum, l.Sum.Seconds(), buckets)
	if err != nil {
		return prometheus.NewInvalidMetric(d, err)
	}
	return m
}
