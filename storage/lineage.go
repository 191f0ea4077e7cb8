package storage

import (
	"sync"
	"sync/atomic"
)

// lineages counts over all files that this process opens, so that no two of
// them share one however alike their generations are numbered.
var lineages atomic.Uint64

// lineage tells which views of an opened file name the same documents by the
// same ordinals: those of one generation. A compaction keeps ordinals, and so
// the lineage; another file under the same name has one of its own.
type lineage struct {
	mu                 sync.Mutex
	number, generation uint64 // 0: not known yet
}

// numberFor returns the lineage of a view of a generation.
func (l *lineage) numberFor(generation uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.number == 0 || l.generation != 0 && l.generation != generation {
		l.number = lineages.Add(1)
	}
	l.generation = generation
	return l.number
}

// rewritten hands the lineage of a file on to what a compaction made of it,
// whose generations are counted anew.
func (l *lineage) rewritten(to *lineage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	to.number, to.generation = l.number, 0
}

// Lineage is the same for views that name the same documents by the same
// ordinals. It means nothing in another process.
func (v *View) Lineage() uint64 { return v.lineage }
