package files

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"
)

// ErrLocked reports that another process or handle has the lock. Other errors of [LockShared] and
// [LockExclusive] mean that the system has no locks, or that the file cannot be locked.
var ErrLocked = errors.New("somebody else has the lock")

// lockPollInterval is how often WaitLock tries: often enough to use the gap between two searches.
const lockPollInterval = 10 * time.Millisecond

// WaitLock waits for the lock of an open file, exclusive or shared, and keeps it until the file is
// closed. The error is [ErrLocked] after the deadline, or that of ctx. waiting, if not nil, is
// called each time that another holder has the lock.
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
// its folder. Its error replaces that of the sync: the data was written, but may not be durable. Do
// not set it during a change.
var HookSynced func(path string) error

// HookWaiting, where a test sets it, is called each time that a lock is not available. Do not set
// it while anything waits.
var HookWaiting func(path string)

// AfterSync calls HookSynced if it is set.
func AfterSync(path string) error {
	if HookSynced == nil {
		return nil
	}
	return HookSynced(path)
}

// EmulateWindows makes index files be mapped again when they grow, and open files be renamed before
// another file gets their name. Tests set it on other systems, while no file is open.
var EmulateWindows = runtime.GOOS == "windows"
