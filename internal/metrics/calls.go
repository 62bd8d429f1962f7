package metrics

import "github.com/prometheus/client_golang/prometheus"

// The names are those that gRPC servers in Go have used for long, so that dashboards made for them show this one.
var (
	callsStarted = prometheus.NewDesc("grpc_server_started_total",
		"Calls begun, by method.", []string{"grpc_type", "grpc_service", "grpc_method"}, nil)
	callsHandled = prometheus.NewDesc("grpc_server_handled_total",
		"Calls ended, by method and status.", []string{"grpc_type", "grpc_service", "grpc_method", "grpc_code"}, nil)
)

// callCollector shows the calls that the server has counted.
type callCollector struct{ server Server }

// Describe implements prometheus.Collector.
func (c *callCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- callsStarted
	ch <- callsHandled
}

// Collect implements prometheus.Collector.
func (c *callCollector) Collect(ch chan<- prometheus.Metric) {
	c.server.VisitCalls(func(kind, service, method string, n uint64) {
		ch <- counter(callsStarted, n, kind, service, method)
	}, func(kind, service, method, code string, n uint64) {
		ch <- counter(callsHandled, n, kind, service, method, code)
	})
}
