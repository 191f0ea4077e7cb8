// Package journal keeps the log of one shard in an object store: entry n is an object that is put
// on the condition that there is none, so that the store decides which of several writers has n.
package journal

import (
	"context"
	"errors"
	"time"

	"github.com/plaid-ir/plaid/storage/objects"
)

var (
	// ErrTaken: another writer has the next number. Read it, and append after it.
	ErrTaken = errors.New("the next entry of the log is another's")
	// ErrBehind: the log has been cut after the position. Begin again with the newest checkpoint.
	ErrBehind = errors.New("the log begins after this position")
	// ErrFork: an entry does not follow the one before it.
	ErrFork = errors.New("the log is forked or damaged")
	// ErrUnknown: the store gave no answer; the entry may be in the log, now or later.
	ErrUnknown = errors.New("it is not known whether the log has the entry")
)

// Position is the place after an entry. The zero Position is the beginning of a log.
type Position struct {
	Number uint64   `json:"number"`
	Hash   [16]byte `json:"hash"` // of the entry's object
	// Seen is when, by the clock of the store, the entry was known to be the last one, such as
	// when it was made; zero: not known. See [Log.Append].
	Seen time.Time `json:"-"`
}

// Entry is one of a log.
type Entry struct {
	Position
	Batches []string  // the batches whose changes it holds
	Body    []byte    // as it was given to Append
	Made    time.Time // by the clock of the store
}

// Options of a log. The zero value is a good choice.
type Options struct {
	// Grace is how long entries and checkpoints stay after they are no longer needed; 0: an hour.
	Grace time.Duration
}

// Log is the log of a shard. It is safe for concurrent use.
type Log struct {
	store  objects.Store
	prefix string // ends with a slash
	o      Options
}

// New returns the log whose objects are below a prefix. Nothing is read.
func New(s objects.Store, prefix string, o Options) *Log { return &Log{s, prefix, o} }

// Append puts an entry after a position, and returns the position after it. batches are the ids
// by which [Log.Find] finds it.
//
// Errors: [ErrTaken], [ErrBehind], [ErrUnknown], that of ctx if nothing was sent.
func (l *Log) Append(ctx context.Context, after Position, batches []string, body []byte) (Position, error) {
	return Position{}, errors.ErrUnsupported
}

// Read calls use for the entries after a position, in order, as far as there are any, and returns
// how far it came. An error of use ends it.
//
// Errors: [ErrBehind], [ErrFork].
func (l *Log) Read(ctx context.Context, after Position, use func(Entry) error) (Position, error) {
	return Position{}, errors.ErrUnsupported
}

// End returns the number of the last entry, at the cost of one list of what follows a position.
// The error is [ErrBehind] if the entry after the position is missing.
func (l *Log) End(ctx context.Context, after Position) (uint64, error) {
	return 0, errors.ErrUnsupported
}

// Find looks for the entry of a batch among those with numbers in (after, upTo]; found is false if
// none has it. It reads the heads of the entries only.
func (l *Log) Find(ctx context.Context, batch string, after, upTo uint64) (entry uint64, found bool, err error) {
	return 0, false, errors.ErrUnsupported
}

// Cut removes the entries before a number, of which a checkpoint that is older than the grace has
// all. The caller has made sure of that; see [Checkpoints].
func (l *Log) Cut(ctx context.Context, before uint64) (removed int, err error) {
	return 0, errors.ErrUnsupported
}

// Checkpoint is an index file of a shard in the store.
type Checkpoint struct {
	Name       string // of its object
	Generation uint64
	Position   // of the last entry that is in it
	Size       int64
	Made       time.Time // by the clock of the store
}

// Checkpoints lists the checkpoints of one generation of a shard, the newest last. Names have
// generation, number and hash.
func Checkpoints(ctx context.Context, s objects.Store, prefix string, generation uint64) ([]Checkpoint, error) {
	return nil, errors.ErrUnsupported
}

// CheckpointName is the name of the object of a checkpoint.
func CheckpointName(prefix string, generation uint64, at Position) string { return "" }
