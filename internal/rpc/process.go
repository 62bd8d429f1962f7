package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/resolver/dns"
)

// leastBetweenLookups is how soon a name may be looked up again after it was found. gRPC asks only when an attempt to connect has failed, and
// paces those; by itself it would go on with an old address for 30 s.
const leastBetweenLookups = time.Second

// SetUpProcess sets what gRPC has only one of in a process: how soon it looks names up again, and that it writes nothing to standard error. It is for
// programs to call, before anything else of this package.
func SetUpProcess() {
	grpclog.SetLoggerV2(&transportLog)
	dns.SetMinResolutionInterval(leastBetweenLookups)
}

// LogTransport has gRPC's warnings and errors logged as details, for all there is of gRPC in the process. Nil: they are dropped.
func LogTransport(log *slog.Logger) { transportLog.log.Store(log) }

// transportLog takes what gRPC has to say beside its errors. By itself gRPC would write that to standard error, where it is neither quiet nor
// a line of the log, and spoils a screen.
var transportLog transportLogger

// transportLogger passes warnings and errors on to a log, as details; without one it drops them, and all else always.
type transportLogger struct {
	log atomic.Pointer[slog.Logger] // nil: none
}

func (t *transportLogger) detail(text string) {
	if log := t.log.Load(); log != nil {
		log.Log(context.Background(), slog.LevelDebug, "gRPC", "text", text)
	}
}

// The methods of grpclog.LoggerV2.

// Info drops.
func (t *transportLogger) Info(...any) {}

// Infoln drops.
func (t *transportLogger) Infoln(...any) {}

// Infof drops.
func (t *transportLogger) Infof(string, ...any) {}

// Warning passes on.
func (t *transportLogger) Warning(args ...any) { t.detail(fmt.Sprint(args...)) }

// Warningln passes on.
func (t *transportLogger) Warningln(args ...any) { t.detail(fmt.Sprint(args...)) }

// Warningf passes on.
func (t *transportLogger) Warningf(format string, args ...any) {
	t.detail(fmt.Sprintf(format, args...))
}

// Error passes on.
func (t *transportLogger) Error(args ...any) { t.detail(fmt.Sprint(args...)) }

// Errorln passes on.
func (t *transportLogger) Errorln(args ...any) { t.detail(fmt.Sprint(args...)) }

// Errorf passes on.
func (t *transportLogger) Errorf(format string, args ...any) { t.detail(fmt.Sprintf(format, args...)) }

// Fatal does not return.
func (t *transportLogger) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// Fatalln does not return.
func (t *transportLogger) Fatalln(args ...any) { panic(fmt.Sprint(args...)) }

// Fatalf does not return.
func (t *transportLogger) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// V reports whether to go to the length of details.
func (t *transportLogger) V(int) bool { return false }
