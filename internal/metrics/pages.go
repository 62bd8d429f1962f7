package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Pages are what is served over HTTP: /metrics, /healthz, /readyz and, if asked for, /debug/pprof/. There is nothing else, and nothing
// there can change anything.
type Pages struct {
	// Metrics are shown on /metrics.
	Metrics prometheus.Gatherer
	// Ready reports whether the broker takes messages and subscriptions.
	Ready func() bool
	// Profiles turns /debug/pprof/ on.
	Profiles bool
	// Logger is told what goes wrong; nil: nobody is.
	Logger *slog.Logger
}

// What strangers may cost.
const (
	maxPageConnections = 100
	maxScrapes         = 8 // at once; more are told to come back
	maxPageHeaders     = 16 << 10
	readTimeout        = 10 * time.Second
	pageTimeout        = 30 * time.Second // to write an answer
	keepAlive          = 2 * time.Minute
	maxProfile         = 5 * time.Minute
)

// Handler serves the pages.
func (p *Pages) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes,
		ErrorLog:            slog.NewLogLogger(p.logger().Handler(), slog.LevelError),
	}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if p.Ready() {
			say(w, http.StatusOK, "ready")
		} else {
			say(w, http.StatusServiceUnavailable, "not ready")
		}
	})
	if p.Profiles {
		difference := bounded(pprof.Index)
		mux.HandleFunc("/debug/pprof/", func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("seconds") != "" { // what changes in that time
				difference(w, r)
			} else {
				pprof.Index(w, r)
			}
		})
		mux.HandleFunc("/debug/pprof/profile", bounded(pprof.Profile))
		mux.HandleFunc("/debug/pprof/trace", bounded(pprof.Trace))
	}
	return onlyReading(mux)
}

func (p *Pages) logger() *slog.Logger {
	if p.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return p.Logger
}

func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // whoever asked is gone
}

// onlyReading refuses every method but GET and HEAD, and bounds how long an answer may take to be written.
func onlyReading(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			say(w, http.StatusMethodNotAllowed, "only GET and HEAD")
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		setDeadline(w, pageTimeout)
		next.ServeHTTP(w, r)
	})
}

// bounded lets a profile take as long as it was asked to, up to maxProfile.
func bounded(profile http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if text := r.FormValue("seconds"); text != "" {
			seconds, err := strconv.ParseFloat(text, 64)
			if err != nil || !(seconds > 0 && seconds <= maxProfile.Seconds()) {
				say(w, http.StatusBadRequest, "seconds must be a number up to "+strconv.Itoa(int(maxProfile.Seconds())))
				return
			}
		}
		setDeadline(w, maxProfile+pageTimeout)
		profile(w, r)
	}
}

// setDeadline says until when the answer must be written. What is not a connection has none.
func setDeadline(w http.ResponseWriter, d time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d))
}

// Serve serves the pages on l until ctx ends, and closes it. The error is nil then.
func (p *Pages) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           whileBusy(p.Handler()),
		ConnContext:       withPageConn,
		ReadTimeout:       readTimeout,
		ReadHeaderTimeout: readTimeout,
		IdleTimeout:       keepAlive,
		MaxHeaderBytes:    maxPageHeaders,
		ErrorLog:          slog.NewLogLogger(p.logger().Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(newPageListener(l, maxPageConnections))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
