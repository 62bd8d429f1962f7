// Package metrics shows what the broker counts to Prometheus, and serves the pages that operators and their machines ask for over HTTP. Nothing
// is counted here: a scrape reads what core and the server count anyway, so no message pays for it.
//
// No label holds a topic, a key, a client or a subscription. Groups are named up to a limit, see groupNames. All other labels
// have a fixed set of values, each of which is there from the first scrape on.
package metrics
