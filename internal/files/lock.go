package files

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrLocked: somebody else has the lock. Other errors of [LockShared] and [LockExclusive] say that
// there are no locks here, or that the file cannot be locked.
var ErrLocked = errors.New("somebody else has the lock")

// poll is how often WaitLock tries: soon enough for a moment between two that search.
const poll = 10 * time.Millisecond

// WaitLock takes the lock of an open file, exclusive or shared, once others let it go. It is
// held until the file is closed. The error is [ErrLocked] after the deadline, or that of ctx.
// waiting, if not nil, is called each time that somebody else has the lock.
func WaitLock(ctx context.Context, f *os.File, exclusive bool, deadline time.Time, waiting func(path string)) error {
	try := LockShared
	if exclusive {
		try = LockExclusive
	}
	for {
		err := try(f)
		if !errors.Is(err, ErrLocked) || !time.Now().Before(deadline) {
			return err
		}
		if waiting != nil {
			waiting(f.Name())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(poll, time.Until(deadline))):
		}
	}
}
