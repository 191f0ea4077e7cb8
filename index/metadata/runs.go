package metadata

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/RoaringBitmap/roaring/v2"
)

// Documents are those of an index at one moment, as runs need them. They are safe for
// concurrent use.
type Documents interface {
	// Payload is that of a live document; nil: it has none.
	Payload(ordinal uint32) ([]byte, error)
	// ID is the name of a live document, and Ordinal the document of a name.
	ID(ordinal uint32) string
	Ordinal(id string) (ordinal uint32, ok bool, err error)
	// FieldRun returns what reads the values of a run; see [Open].
	FieldRun(run uint32) func(key []byte) ([]byte, error)
	// Guard calls a function that reads of the documents on a goroutine of its own.
	Guard(read func() error) error
}

// Stored names a run of an index. Indexes have theirs in order, older ones first.
type Stored struct {
	ID   uint32
	Docs uint32 // that it covers, deleted ones included
}

// RunError is damage of a run: values that are malformed ([ErrFormat]), or that do not
// follow from the payloads.
type RunError struct {
	Run uint32
	Err error
}

func (e *RunError) Error() string { return fmt.Sprintf("field run %d: %v", e.Run, e.Err) }

// Unwrap returns the cause.
func (e *RunError) Unwrap() error { return e.Err }

// ofRun names the run that is damaged. What reading it failed with says so itself.
func ofRun(id uint32, err error) error {
	if errors.Is(err, ErrFormat) {
		return &RunError{id, err}
	}
	return err
}

func openRun(docs Documents, s Stored) (*Run, error) {
	run, err := Open(docs.FieldRun(s.ID))
	return run, ofRun(s.ID, err)
}

// largestRun bounds what a run may have in memory while it is made, whatever its maker
// says.
var largestRun int64 = math.MaxInt64 // a variable, so that tests see many runs

// Gatherer makes the runs of a change.
type Gatherer struct {
	builder Builder
	limit   int64
}

// NewGatherer returns one whose runs have about so many bytes in memory at most.
func NewGatherer(limit int64) *Gatherer { return &Gatherer{limit: min(limit, largestRun)} }

// Add covers a document. The error is that of the context, and then the gatherer is of no
// use.
func (g *Gatherer) Add(ctx context.Context, ordinal uint32, payload []byte) error {
	return g.builder.Add(ctx, ordinal, payload)
}

// Empty reports whether nothing has been gathered since the last run.
func (g *Gatherer) Empty() bool { return g.builder.docs.IsEmpty() }

// Full reports whether what has been gathered should become a run.
func (g *Gatherer) Full() bool { return g.builder.Bytes() > g.limit }

// Absorb takes in the last ones of the runs of an index, as the policy of merging says,
// and returns how many. live has the documents for which they may count.
func (g *Gatherer) Absorb(ctx context.Context, docs Documents, live *roaring.Bitmap, runs []Stored) (absorbed int, err error) {
	for ; absorbed < len(runs); absorbed++ {
		last := runs[len(runs)-1-absorbed]
		if g.Full() || !runMerges.Absorbs(g.builder.docs.GetCardinality(), uint64(last.Docs)) {
			break
		}
		run, err := openRun(docs, last)
		if err != nil {
			return 0, err
		}
		keep := roaring.AndNot(live, &g.builder.docs)
		if err := g.builder.Absorb(ctx, run, keep, docs.Payload); err != nil {
			return 0, ofRun(last.ID, err)
		}
	}
	return absorbed, nil
}

// Values are those of a run on its way into an index.
type Values struct {
	Docs         uint32 // that it covers
	Keys, Values [][]byte
	Bytes        int // of all of them
}

// Run returns the values of a run of what has been gathered, and begins anew.
func (g *Gatherer) Run() (*Values, error) {
	v := &Values{Docs: uint32(g.builder.docs.GetCardinality())}
	err := g.builder.Write(func(key, value []byte) error {
		v.Keys, v.Values = append(v.Keys, key), append(v.Values, value)
		v.Bytes += len(key) + len(value)
		return nil
	})
	g.builder = Builder{}
	return v, err
}
