package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// The garbage collector runs whenever the heap has grown by a percentage of what was alive after the last run. A broker
// with empty queues has next to nothing alive while gigabytes of frames pass through it, so with the usual 100 percent
// the collector would run all the time; a full one could double its memory. What suits a broker is room of a fixed size:
// here a quarter of max_memory. After each collection the percentage is set anew so that it amounts to that room: high
// while the heap is small, low when it is full.
//
// A memory limit (debug.SetMemoryLimit) is left to whoever knows the machine, through GOMEMLIMIT: below what thousands of
// connections need beside the messages, it would make the collector run without end. With GOGC set, nothing here is done.
const (
	minRoom = 32 << 20
	maxRoom = 1 << 30
	// minHeap stands for the program's own data, so that an empty heap does not give an endless percentage.
	minHeap    = 4 << 20
	minPercent = 25
)

// tuneCollector keeps the collector's percentage in step until stop is called.
func tuneCollector(maxMemory int64) (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	room := uint64(min(max(maxMemory/4, minRoom), maxRoom))
	before := debug.SetGCPercent(collectorPercent(room, 0))
	var stopped atomic.Bool
	afterEachCollection(func() bool {
		if stopped.Load() {
			return false
		}
		debug.SetGCPercent(collectorPercent(room, liveHeap()))
		return true
	})
	return func() {
		stopped.Store(true)
		debug.SetGCPercent(before)
	}
}

// giveBackMemory returns to the system what a load has left behind: nothing else would while nothing is allocated. It looks for it every
// interval, and acts when no collection has run meanwhile, so that a broker at work is left alone. held is what its messages take.
func giveBackMemory(held func() int64, interval time.Duration) (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		var g giver
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			if taken, cycles := heapTaken(); g.due(taken-held(), cycles) {
				debug.FreeOSMemory()
				taken, cycles = heapTaken()
				g.given(taken-held(), cycles)
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
	}
}

// giver decides when there is something to give back.
type giver struct {
	floor  int64 // what the heap takes beside messages when it is clean
	cycles uint64
}

// due reports whether much more is taken than when it was last clean, and no collection has run since the last look.
func (g *giver) due(taken int64, cycles uint64) bool {
	quiet := cycles == g.cycles
	g.cycles = cycles
	g.floor = min(g.floor, taken)
	return quiet && taken > g.floor+minRoom/2
}

// given notes what is left.
func (g *giver) given(taken int64, cycles uint64) { g.floor, g.cycles = taken, cycles }

// heapTaken returns how many bytes of the system's memory the heap has, in use or not, and how many collections there were.
func heapTaken() (bytes int64, cycles uint64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(samples)
	for _, s := range samples[:3] {
		bytes += int64(s.Value.Uint64())
	}
	return bytes, samples[3].Value.Uint64()
}

func collectorPercent(room, live uint64) int {
	return int(max(minPercent, room*100/max(live, minHeap)))
}

func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// afterEachCollection calls f once after every garbage collection for as long as it returns true: the finalizer of an
// object that nobody refers to runs then, and leaves another such object behind.
func afterEachCollection(f func() bool) {
	type mark struct{ _ [64]byte } // not so small that it shares its memory
	var again func(*mark)
	again = func(*mark) {
		if f() {
			runtime.SetFinalizer(new(mark), again)
		}
	}
	runtime.SetFinalizer(new(mark), again)
}
