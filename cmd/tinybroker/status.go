package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

type statusOptions struct {
	*clientOptions
	output string
}

func newStatusCmd(a *app, runF func(context.Context, *statusOptions) error) *cobra.Command {
	o := &statusOptions{clientOptions: newClientOptions(), output: "text"}
	if runF == nil {
		runF = func(ctx context.Context, o *statusOptions) error { return runStatus(ctx, a, o) }
	}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how the broker is",
		Long: `Print the broker's address, version, uptime, health and totals. The exit code is
0 when the broker is serving, and 69 when it is not or cannot be reached: this
is a health check. With -q it asks for the health alone, for which a broker
wants no credential.`,
		Example: `  tinybroker status
  tinybroker status -o json
  tinybroker status -q --connect-timeout 1s`,
		Args:        noArgs,
		Annotations: map[string]string{noteSection: sectionClient},
		RunE:        func(cmd *cobra.Command, _ []string) error { return runF(cmd.Context(), o) },
	}
	cmd.Flags().VarP(choice(&o.output, "text", "json"), "output", "o", "`format`: text or json")
	o.clientOptions.addFlags(cmd.Flags())
	return cmd
}

// statusReport is what status prints; the names are those of its JSON.
type statusReport struct {
	Address        string    `json:"address"`
	Version        string    `json:"version"`
	RunID          string    `json:"run_id"`
	Health         string    `json:"health"`
	StartTime      time.Time `json:"start_time"`
	UptimeSeconds  int64     `json:"uptime_seconds"`
	Subscriptions  int       `json:"subscriptions"`
	QueuedMessages int64     `json:"queued_messages"`
	MemoryBytes    int64     `json:"memory_bytes"`
	MemoryLimit    int64     `json:"memory_limit_bytes"`

	PublishedMessages uint64 `json:"published_messages"`
	PublishedBytes    uint64 `json:"published_bytes"`
	DeliveredMessages uint64 `json:"delivered_messages"`
	DeliveredBytes    uint64 `json:"delivered_bytes"`
	UnroutedMessages  uint64 `json:"unrouted_messages"`
	RefusedMessages   uint64 `json:"refused_messages"`
	DroppedMessages   uint64 `json:"dropped_messages"`
	LostMessages      uint64 `json:"lost_messages"`
	Evictions         uint64 `json:"evictions"`
}

func runStatus(ctx context.Context, a *app, o *statusOptions) error {
	client, err := o.dial(ctx, o.notices(a.streams), new(link))
	if err != nil {
		return err
	}
	defer client.Close()
	asking, cancel := context.WithTimeout(ctx, o.connectTimeout)
	defer cancel()
	serving, err := client.Health(asking)
	if err != nil {
		return fmt.Errorf("status: health: %w", err)
	}
	if !o.quiet {
		stats, err := client.Stats(asking)
		if err != nil && serving {
			return fmt.Errorf("status: %w", err)
		}
		report := newStatusReport(o.server, serving, stats)
		if err := a.report(ctx, func(w io.Writer) error { return report.write(w, o.output == "json") }); err != nil {
			return err
		}
	}
	if !serving {
		return failf(exitUnavailable, "status: the broker at %s is not serving", o.server)
	}
	return nil
}

func newStatusReport(address string, serving bool, st core.Stats) *statusReport {
	r := &statusReport{
		Address: address, Version: st.Version, RunID: st.RunID, Health: "NOT_SERVING",
		StartTime: st.Started, UptimeSeconds: int64(st.Time.Sub(st.Started) / time.Second),
		Subscriptions: st.Subscriptions, QueuedMessages: st.QueuedMessages,
		MemoryBytes: st.Memory, MemoryLimit: st.MaxMemory,
		PublishedMessages: st.Published, PublishedBytes: st.PublishedBytes,
		DeliveredMessages: st.Delivered, DeliveredBytes: st.DeliveredBytes,
		UnroutedMessages: st.Unrouted, RefusedMessages: st.Refused,
		DroppedMessages: st.Dropped, LostMessages: st.Lost, Evictions: st.Evictions,
	}
	if serving {
		r.Health = "SERVING"
	}
	return r
}

func (r *statusReport) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "address\t%s\n", safe(r.Address))
	fmt.Fprintf(t, "version\t%s\n", safe(r.Version))
	fmt.Fprintf(t, "health\t%s\n", r.Health)
	fmt.Fprintf(t, "uptime\t%s\n", roughDuration(time.Duration(r.UptimeSeconds)*time.Second))
	fmt.Fprintf(t, "memory\t%s of %s\n", humanize.IBytes(uint64(max(r.MemoryBytes, 0))), humanize.IBytes(uint64(max(r.MemoryLimit, 0))))
	fmt.Fprintf(t, "subscriptions\t%s, %s queued\n", number(uint64(r.Subscriptions)), count(uint64(max(r.QueuedMessages, 0)), "message"))
	fmt.Fprintf(t, "published\t%s, %s\n", count(r.PublishedMessages, "message"), roughSize(int64(r.PublishedBytes)))
	fmt.Fprintf(t, "delivered\t%s, %s\n", count(r.DeliveredMessages, "message"), roughSize(int64(r.DeliveredBytes)))
	fmt.Fprintf(t, "not delivered\t%s unrouted, %s refused, %s dropped, %s lost\n",
		number(r.UnroutedMessages), number(r.RefusedMessages), number(r.DroppedMessages), number(r.LostMessages))
	fmt.Fprintf(t, "evictions\t%s\n", number(r.Evictions))
	return t.Flush()
}
