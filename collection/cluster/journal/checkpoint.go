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

// Checkpoint is an index file of a shard in the store: all entries up to its position, encoded
// with the codec of a generation.
type Checkpoint struct {
	Name       string // of its object
	Generation uint64
	Position   // of the last entry that is in it
	Size       int64
	Made       time.Time // by the clock of the store
}

// CheckpointName is the name of the object of a checkpoint.
func (l *Log) CheckpointName(generation uint64, at Position) string {
	return fmt.Sprintf("%s%08d-%016x-%s", l.files, generation, at.Number, at.Hash)
}

// Checkpoints lists the checkpoints of one generation of the shard, the newest last.
func (l *Log) Checkpoints(ctx context.Context, generation uint64) ([]Checkpoint, error) {
	return l.checkpoints(ctx, fmt.Sprintf("%s%08d-", l.files, generation))
}

func (l *Log) checkpoints(ctx context.Context, prefix string) ([]Checkpoint, error) {
	found, err := l.store.List(ctx, prefix, "", 0)
	if err != nil {
		return nil, err
	}
	var all []Checkpoint
	for _, e := range found {
		if c, ok := ParseCheckpoint(e); ok {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b Checkpoint) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Number, b.Number))
	})
	return all, nil
}

// ParseCheckpoint reads what the name of an object says; ok is false if it is not that of a checkpoint.
func ParseCheckpoint(e objects.Entry) (c Checkpoint, ok bool) {
	file := e.Name[strings.LastIndexByte(e.Name, '/')+1:]
	parts := strings.Split(file, "-")
	if len(parts) != 3 {
		return c, false
	}
	c = Checkpoint{Name: e.Name, Size: e.Size, Made: e.Made}
	var err error
	if c.Generation, err = strconv.ParseUint(parts[0], 10, 64); err != nil || fmt.Sprintf("%08d", c.Generation) != parts[0] {
		return c, false
	}
	if c.Number, ok = hexNumber(parts[1]); !ok || c.Hash.UnmarshalText([]byte(parts[2])) != nil || c.Hash.String() != parts[2] {
		return c, false
	}
	return c, true
}

// Unneeded decides what of a shard may be removed (I4): the entries before a number, for [Log.Cut],
// and checkpoints. all are the checkpoints of the shard, generations those that are in use or built,
// and now a time that is not after that of the store, such as the newest of an object. Of each generation it
// looks for the newest checkpoint that is older than the grace and not the newest of all: what comes before
// that is not needed, so that each generation keeps two checkpoints, and the entries after both.
func Unneeded(all []Checkpoint, generations []uint64, now time.Time, grace time.Duration) (before uint64, drop []Checkpoint) {
	if len(generations) == 0 {
		return 0, nil
	}
	before = math.MaxUint64
	for _, g := range generations {
		var of []Checkpoint
		for _, c := range all {
			if c.Generation == g {
				of = append(of, c)
			}
		}
		slices.SortStableFunc(of, func(a, b Checkpoint) int { return cmp.Compare(a.Number, b.Number) })
		keep := len(of) - 2
		for keep >= 0 && now.Sub(of[keep].Made) < grace {
			keep--
		}
		if keep < 0 { // it needs all that is there
			before = 0
			continue
		}
		before = min(before, of[keep].Number)
		drop = append(drop, of[:keep]...)
	}
	return before, drop
}
