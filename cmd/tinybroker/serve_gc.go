package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
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
