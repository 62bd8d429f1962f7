package rpc

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestTransportLog(t *testing.T) {
	var out bytes.Buffer
	logger := new(transportLogger)
	logger.Warningf("dropped, as there is no log")
	logger.log.Store(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	logger.Infoln("dropped")
	logger.Warning("a ", "warning")
	logger.Errorf("an %s", "error")
	if got := out.String(); strings.Count(got, "level=DEBUG msg=gRPC ") != 2 || !strings.Contains(got, `text="a warning"`) || !strings.Contains(got, `text="an error"`) {
		t.Errorf("%s", got)
	}
}
