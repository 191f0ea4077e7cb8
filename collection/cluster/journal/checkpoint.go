package journal

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/storage/objects"
)

// Checkpoint is an index file in the store: the state of a shard after an entry, encoded with the codec of a
// generation.
type Checkpoint struct {
	Name       string // name of the object
	Generation uint64
	Position   // of the last entry in it
	Size       int64
	Made       time.Time // by the clock of the store
}

// CheckpointName returns the name of the object of a checkpoint.
func (l *Log) CheckpointName(generation uint64, position Position) string {
	return fmt.Sprintf("%s%08d-%016x-%s", l.filesPrefix, generation, position.Number, position.Hash)
}

// Checkpoints lists the checkpoints of one generation of the shard, the newest last.
func (l *Log) Checkpoints(ctx context.Context, generation uint64) ([]Checkpoint, error) {
	return l.checkpoints(ctx, fmt.Sprintf("%s%08d-", l.filesPrefix, generation))
}

// checkpoints lists the checkpoints with a prefix, ordered by generation and entry.
func (l *Log) checkpoints(ctx context.Context, prefix string) ([]Checkpoint, error) {
	listed, err := l.store.List(ctx, prefix, "", 0)
	if err != nil {
		return nil, err
	}
	var checkpoints []Checkpoint
	for _, object := range listed {
		if c, ok := ParseCheckpoint(object); ok {
			checkpoints = append(checkpoints, c)
		}
	}
	slices.SortStableFunc(checkpoints, compareCheckpoints)
	return checkpoints, nil
}

// compareCheckpoints orders checkpoints by generation and entry.
func compareCheckpoints(a, b Checkpoint) int {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Number, b.Number))
}

// ParseCheckpoint parses the name of an object. ok is false if the object is not a checkpoint.
func ParseCheckpoint(e objects.Entry) (c Checkpoint, ok bool) {
	file := e.Name[strings.LastIndexByte(e.Name, '/')+1:]
	fields := strings.Split(file, "-")
	if len(fields) != 3 {
		return c, false
	}
	c = Checkpoint{Name: e.Name, Size: e.Size, Made: e.Made}
	var err error
	c.Generation, err = strconv.ParseUint(fields[0], 10, 64)
	if err != nil || fmt.Sprintf("%08d", c.Generation) != fields[0] {
		return c, false
	}
	if c.Number, ok = hexNumber(fields[1]); !ok {
		return c, false
	}
	err = c.Hash.UnmarshalText([]byte(fields[2]))
	return c, err == nil && c.Hash.String() == fields[2]
}

// SelectRemovable decides which entries and checkpoints of a shard may be removed (I4: what may be cut). Entries before
// the returned number may be passed to [Log.Cut].
//
// checkpoints are those of the shard, generations those that are searched or being built. now must not be later than
// the time of the store, so use the time of a new object.
//
// Each generation keeps its newest checkpoint, the newest of those before it that is older than the grace, and all
// entries after the older of the two.
func SelectRemovable(checkpoints []Checkpoint, generations []uint64, now time.Time,
	grace time.Duration) (before uint64, removable []Checkpoint) {
	if len(generations) == 0 {
		return 0, nil
	}
	before = math.MaxUint64
	for _, g := range generations {
		other := func(c Checkpoint) bool { return c.Generation != g }
		ofGeneration := slices.DeleteFunc(slices.Clone(checkpoints), other)
		slices.SortStableFunc(ofGeneration, compareCheckpoints)
		oldestKept := len(ofGeneration) - 2 // the newest one is kept anyway
		for oldestKept >= 0 && now.Sub(ofGeneration[oldestKept].Made) < grace {
			oldestKept--
		}
		if oldestKept < 0 { // no checkpoint is old enough: the generation needs everything
			before = 0
			continue
		}
		before = min(before, ofGeneration[oldestKept].Number)
		removable = append(removable, ofGeneration[:oldestKept]...)
	}
	return before, removable
}
