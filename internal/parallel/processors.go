package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// spare is by how much GOMAXPROCS exceeds what may compute.
var spare atomic.Int64

// Processors is how many goroutines should compute at a time: GOMAXPROCS, less what
// [Spare] has added.
func Processors() int { return max(1, runtime.GOMAXPROCS(0)-int(spare.Load())) }

// Spare raises GOMAXPROCS above the number of processors, once, so that a goroutine that
// waits for a network or a clock runs as soon as that is ready. Go looks at them when a
// goroutine that computes stops, or after 10 ms, unless one of GOMAXPROCS is idle: while
// as many compute as there are, requests lie unread, and answers wait, for several times
// what a search takes. It is for programs that serve.
func Spare() { raise() }

var raise = sync.OnceFunc(func() {
	n := runtime.GOMAXPROCS(0)
	more := 1 + n/8
	spare.Store(int64(more))
	runtime.GOMAXPROCS(n + more)
})
