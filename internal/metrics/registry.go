package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

// Broker is what is shown. *core.Broker is one. All methods must be safe for concurrent use.
type Broker interface {
	Stats() core.Stats
	Tally() core.Tally
}

// Server is whoever serves the broker. All methods must be safe for concurrent use.
type Server interface {
	// Connections returns how many clients are connected.
	Connections() int
	// ConnectionLimit returns how many may be, and ConnectionsWaiting for how many listeners some wait since that is reached.
	ConnectionLimit() int
	ConnectionsWaiting() int
	// VisitCalls tells how many calls of each method were begun and how many have ended with each status, zeroes included.
	VisitCalls(started func(kind, service, method string, n uint64), handled func(kind, service, method, code string, n uint64))
}

// Build says what is running.
type Build struct{ Version, GoVersion string }

// NewRegistry returns all metrics of a broker, its server and their process.
func NewRegistry(broker Broker, server Server, build Build) (*prometheus.Registry, error) {
	r := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		newBrokerCollector(broker, server, build),
		&callCollector{server},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return r, nil
}
