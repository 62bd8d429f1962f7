package core

import (
	"sync"
	"testing"
)

// Who asks for more than there is takes nothing from others, not even while it is refused.
func TestWhatIsRefusedTakesNoRoom(t *testing.T) {
	m := memory{limit: 1000}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if m.acquire(1001) {
				t.Error("more than there is was had")
				return
			}
		}
	})
	refused := 0
	for range 200_000 {
		if m.acquire(1) {
			m.free(1)
		} else {
			refused++
		}
	}
	close(stop)
	wg.Wait()
	if refused > 0 {
		t.Errorf("refused %d times though there was room", refused)
	}
	if used := m.used.Load(); used != 0 {
		t.Errorf("%d bytes are accounted for at the end", used)
	}
}
