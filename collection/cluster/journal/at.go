package journal

import (
	"context"
	"math"
)

// At reads the entry of a number. The error is [objects.ErrNotFound] if the log does not have it, or
// not any more.
func (l *Log) At(ctx context.Context, number uint64) (Entry, error) {
	return l.entry(ctx, listing{number: number, size: math.MaxInt32})
}
