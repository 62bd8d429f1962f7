package tui

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"codeberg.org/tinybroker/tinybroker/internal/core"
)

func newWatch(t *testing.T) *watch {
	w := &watch{number: 7, news: make(chan *core.Snapshot, 1)}
	w.ctx, w.cancel = context.WithCancelCause(t.Context())
	t.Cleanup(func() { w.cancel(nil) })
	return w
}

// A broker that falls silent is taken for lost; one that answers late, but does, is not.
func TestSilentBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatch(t)
		began := time.Now()
		var last time.Duration
		source := &playing{watch: func(ctx context.Context, _ core.Query, f func(*core.Snapshot) error) error {
			for range 3 {
				time.Sleep(answerPatience)
				f(sample())
			}
			last = time.Since(began)
			<-ctx.Done()
			return ctx.Err()
		}}
		msg := w.run(source, core.Query{}, time.Second).(watchEndedMsg)
		if msg.watch != 7 || !errors.Is(msg.err, errNoAnswer) || msg.err.Error() != "no answer for 11s" {
			t.Errorf("ended with %v", msg.err)
		}
		if silence := time.Since(began) - last; silence != answerPatience+time.Second {
			t.Errorf("waited for %s", silence)
		}
	})
}

// Snapshots that come faster than they are drawn replace each other.
func TestTheNewestSnapshotCounts(t *testing.T) {
	w := newWatch(t)
	for i := range 5 {
		w.offer(&core.Snapshot{Broker: core.Stats{Topics: i}})
	}
	if msg := w.await(t.Context()).(snapshotMsg); msg.watch != 7 || msg.snap.Broker.Topics != 4 {
		t.Errorf("got %+v", msg)
	}
	w.cancel(nil)
	if msg := w.await(t.Context()); msg != nil {
		t.Errorf("an ended watch has %v", msg)
	}
}

// Commands end with the program, and none starts after that.
func TestJobsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJobs(t.Context())
		ended := false
		go j.command(j.ctx, func(ctx context.Context) tea.Msg {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return nil
		})()
		go j.after(time.Hour, tickMsg{})()
		synctest.Wait()
		j.close()
		if !ended {
			t.Error("close does not wait")
		}
		if msg := j.command(j.ctx, func(context.Context) tea.Msg { return tickMsg{} })(); msg != nil {
			t.Errorf("a command ran after the end: %v", msg)
		}
	})
}
