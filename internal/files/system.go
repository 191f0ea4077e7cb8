package files

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"
)

// ErrLocked: somebody else has the lock. Other errors of [LockShared] and [LockExclusive] say that
// there are no locks here, or that the file cannot be locked.
var ErrLocked = errors.New("somebody else has the lock")

// lockPollInterval is how often WaitLock tries: soon enough for a moment between two that search.
const lockPollInterval = 10 * time.Millisecond

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
		case <-time.After(min(lockPollInterval, time.Until(deadline))):
		}
	}
}

// HookSynced, where a test sets it, is called after each sync that ends a change, of a file or of
// the folder that holds it. Its error takes the place of the sync's own: what was written
// is there then, and nothing says whether it is kept. It must not be set while a change is under way.
var HookSynced func(path string) error

// HookWaiting, where a test sets it, is called each time that somebody else has a lock that is waited
// for. It must not be set while something waits.
var HookWaiting func(path string)

// AfterSync calls HookSynced where that is set.
func AfterSync(path string) error {
	if HookSynced == nil {
		return nil
	}
	return HookSynced(path)
}

// AsOnWindows says that index files are mapped again as they grow, and that files that are open are
// renamed before another gets their name. Tests set it on other systems, while no file is open.
var AsOnWindows = runtime.GOOS == "windows"
