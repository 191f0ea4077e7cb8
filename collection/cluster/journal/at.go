package journal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/storage/objects"
)

// At reads the entry of a number. The error is [objects.ErrNotFound] if the log does not have it, or
// not any more.
func (l *Log) At(ctx context.Context, number uint64) (Entry, error) {
	return l.entry(ctx, listing{number: number, size: math.MaxInt32})
}

// Find looks for the entry of a batch among those with numbers in (after, upTo]; found is false if
// none has it. It reads the heads of the entries, and then makes sure that the first one is in the log (I6):
// entries are cut in their order, so that none of the others was cut, and none was put in the place of one that was.
// The error is [ErrBehind] if one was cut.
func (l *Log) Find(ctx context.Context, batch string, after, upTo uint64) (entry uint64, found bool, err error) {
	if upTo <= after {
		return 0, false, nil
	}
	has := make([]bool, upTo-after)
	err = parallel.Do(ctx, len(has), l.ahead, func(i int) error {
		h, err := l.head(ctx, after+1+uint64(i))
		has[i] = err == nil && slices.Contains(h.batches, batch)
		return err
	})
	i := slices.Index(has, true)
	if err == nil || i >= 0 {
		var first Entry
		if first, err = l.At(ctx, after+1); err == nil {
			_, err = l.confirm(ctx, first.Position, nil)
		}
	}
	switch {
	case errors.Is(err, objects.ErrNotFound), errors.Is(err, ErrTaken), errors.Is(err, ErrUnknown) && ctx.Err() == nil:
		return 0, false, fmt.Errorf("%w: %w", ErrBehind, err)
	case err != nil || i < 0:
		return 0, false, err
	}
	return after + 1 + uint64(i), true, nil
}
