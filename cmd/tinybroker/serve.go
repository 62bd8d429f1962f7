package main

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"codeberg.org/tinybroker/tinybroker/internal/core"
	"codeberg.org/tinybroker/tinybroker/internal/rpc"
)

// serveOptions are the settings of serve.
type serveOptions struct {
	broker          core.Options
	server          rpc.ServerOptions
	files           securityFiles
	listen          []string
	socketMode      fs.FileMode
	metricsListen   string
	pprof           bool
	insecure        bool
	shutdownTimeout time.Duration
	addrFile        string
	logLevel        string
	logFormat       string

	// Not settings of the broker: the file does not name them.
	configPath  string
	checkConfig bool
	printConfig bool

	// flags are what the command line, the environment and the file were read into.
	flags *pflag.FlagSet
}

func newServeOptions() *serveOptions {
	return &serveOptions{
		broker:          core.DefaultOptions(),
		server:          rpc.DefaultServerOptions(),
		listen:          []string{defaultAddress},
		socketMode:      0o600,
		metricsListen:   metricsOff,
		shutdownTimeout: 10 * time.Second,
		logLevel:        "info",
		logFormat:       "auto",
	}
}

func (o *serveOptions) addFlags(fs *pflag.FlagSet) {
	o.flags = fs
	b := &o.broker
	fs.Var(list(&o.listen), "listen", "`address` to listen on, host:port or unix:///path; repeat for several")
	fs.Var(modeValue{&o.socketMode}, "socket-mode", "who may use a unix socket that is listened on, as the `mode` of its file: 0660 lets the group in")
	fs.StringVar(&o.metricsListen, "metrics-listen", o.metricsListen, "`address` for /metrics, /healthz and /readyz over HTTP, host:port or unix:///path, or off")
	addBool(fs, &o.pprof, "pprof", "", "serve profiles under /debug/pprof/ on the metrics address")
	o.files.addFlags(fs)
	addBool(fs, &o.insecure, "insecure", "", "allow a listen address that other machines reach, without both TLS and authentication")
	addWhole(fs, &b.ConsumerCapacity, "consumer-capacity", "queue slots of a subscription, in messages")
	addSize(fs, &b.ConsumerCapacityBytes, "consumer-capacity-bytes", "size of the same queue, in bytes")
	addWhole(fs, &b.GroupCapacity, "group-capacity", "messages that wait in a consumer group; those in flight are not counted")
	addSize(fs, &b.GroupCapacityBytes, "group-capacity-bytes", "size of the same queue, in bytes")
	addSpan(fs, &b.GroupLinger, "group-linger", "how long a group goes on queueing without a member before it goes with all it holds; 0: not at all")
	addSpan(fs, &b.AckDeadline, "ack-deadline", "how long a delivery may go without an ack before another member gets it; 0: for ever")
	addWhole(fs, &b.MaxAttempts, "max-attempts", "how often a message is delivered before it becomes a dead letter")
	addWhole(fs, &b.MaxInFlight, "max-in-flight", "messages that a member may have without having acknowledged them")
	addSize(fs, &b.MaxMessageSize, "max-message-size", "largest message: topic, key, headers and payload together")
	addSize(fs, &b.MaxMemory, "max-memory", "message bytes held at once; when full, who reads nothing is evicted")
	addWhole(fs, &b.MaxSubscriptions, "max-subscriptions", "subscriptions at once")
	fs.Var(whole(&o.server.MaxConnections, 1, 1<<24), "max-connections", "connections at once, for each listen address; more wait")
	addSpan(fs, &b.SendTimeout, "send-timeout", "how long a subscriber's stream may take nothing before it is given up")
	fs.Var(span(&o.shutdownTimeout, 0, 24*time.Hour), "shutdown-timeout", "how long a stop waits for queues to drain; 0: not at all")
	addBool(fs, &o.server.Reflection, "reflection", "", "let clients such as grpcurl ask what there is to call")
	fs.Var(choice(&o.logLevel, "debug", "info", "warn", "error"), "log-level", "least `level` to log: debug, info, warn or error")
	fs.Var(choice(&o.logFormat, "auto", "text", "json"), "log-format", "`format` of the log: text, json, or auto (text on a terminal, else json)")
	fs.StringVar(&o.addrFile, "addr-file", "", "write the bound addresses to `path` once listening, for --listen 127.0.0.1:0; that of the metrics is the last one and begins with http")
	inSection(fs, sectionServe)

	fs.StringVar(&o.configPath, "config", "", configUsage)
	addBool(fs, &o.checkConfig, "check-config", "", "check the configuration and exit")
	addBool(fs, &o.printConfig, "print-config", "", "print the merged configuration, and where each value comes from, and exit")
}

const configUsage = "configuration file at `path`; none: read no file (default: $XDG_CONFIG_HOME/tinybroker/config.yaml, then /etc/tinybroker/config.yaml)"

// validate checks what the settings' own ranges cannot: how they go together.
func (o *serveOptions) validate() error {
	var errs mistakes
	if err := o.broker.Validate(); err != nil {
		errs = append(errs, err)
	}
	if int64(o.broker.MaxMessageSize) > o.broker.MaxMemory {
		errs = append(errs, fmt.Errorf("max_message_size: %s is more than max_memory (%s), so the largest message could never be held",
			exactSize(int64(o.broker.MaxMessageSize)), exactSize(o.broker.MaxMemory)))
	}
	errs = append(errs, o.files.validate()...)
	for _, address := range o.listen {
		if err := checkListen("listen", address, o.insecure || o.files.missing() == "",
			"can be reached from other machines, which needs TLS (tls_cert, tls_key) and authentication (auth_file): set both,"); err != nil {
			errs = append(errs, err)
		}
	}
	if err := o.checkPages(); err != nil {
		errs = append(errs, err)
	}
	if err := checkAddrFile(o.addrFile); err != nil {
		errs = append(errs, err)
	}
	return errs.asConfigError()
}

func newServeCmd(a *app, runF func(context.Context, *serveOptions) error) *cobra.Command {
	o := newServeOptions()
	if runF == nil {
		runF = func(ctx context.Context, o *serveOptions) error { return runServe(ctx, a, o) }
	}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker",
		Long: `Run the broker until SIGTERM or SIGINT.

Nothing has to be set up: topics exist by being used, nothing is written to
disk. Every flag can also be set in the environment (--max-memory as
TINYBROKER_MAX_MEMORY) and in the configuration file (max_memory). The flag wins
over the environment, the environment over the file. Names that are not known,
in the file or the environment, stop the start.

--ack-deadline, --max-attempts and --max-in-flight are what groups and members
get that ask for nothing else. Nobody gets more than --group-capacity.

At a stop the broker takes nothing new, delivers what is queued for at most
--shutdown-timeout, and exits with 0. A second signal ends it at once.

SIGHUP reloads: the configuration file is read again, and --log-level follows
it; and so are the certificates and the auth file. Streams of whoever has lost a
right end, the others go on. When there is a mistake in any of the files, all
are refused, and nothing changes. The log says in one line what a reload has
done. Only to a broker that writes its log to a terminal, and whose terminal is
closed, SIGHUP means to stop.

A broker must not be reachable from other machines by accident: any address but
loopback and unix sockets needs TLS (--tls-cert, --tls-key) and authentication
(--auth-file, or --tls-client-ca for certificates that may do everything), or
else --insecure.

--metrics-listen shows metrics to whoever asks; it, too, needs --insecure for
any address but loopback and unix sockets.

--max-memory bounds the messages held, shared ones counted once. The process
takes more: a quarter of it for requests that came in part, a quarter as room
for the garbage collector (32 MiB each at least), 512 KiB for a connection and
64 KiB for a call. GOGC, when set, replaces the broker's own choice.`,
		Example: `  # a broker with defaults, on 127.0.0.1:7710
  tinybroker serve

  # a free port, which the file will tell; and a unix socket
  tinybroker serve --listen 127.0.0.1:0 --listen unix:///tmp/tinybroker.sock --addr-file addr

  # what is in force, and why
  tinybroker serve --max-memory 1GiB --print-config`,
		Args:        noArgs,
		Annotations: map[string]string{noteSection: sectionServe},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			if o.checkConfig {
				if err := checkTheRest(a, o); err != nil || !o.printConfig {
					return err
				}
			}
			if o.printConfig {
				return printConfig(cmd.Context(), a, cmd.Flags())
			}
			return runF(cmd.Context(), o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// ownFiles is more than the broker has open beside its clients' connections, those of the metrics' readers included.
const ownFiles = 150

// warn tells of settings that work, but may not be meant.
func (o *serveOptions) warn(log *slog.Logger) {
	for _, address := range o.listen {
		if loopback, err := isLoopback(address); err == nil && !loopback && o.files.missing() != "" {
			log.Warn("listening without "+o.files.missing()+" on an address that other machines may reach", "listen", address)
		}
	}
	if limit := int64(o.broker.MaxMessageSize); limit > 3<<20 {
		log.Warn("messages may be larger than the 4 MiB that most clients receive by default", "max_message_size", exactSize(limit))
	}
	if most, wanted := mostOpenFiles(), uint64(o.server.MaxConnections*len(o.listen)+ownFiles); most > 0 && wanted > most {
		log.Warn("fewer files may be open than max_connections needs; raise the limit (ulimit -n, LimitNOFILE)", "limit", most, "needed", wanted)
	}
}
