package store

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/plaid-ir/plaid/internal/files"
)

// ErrLocked: another process has the folder open.
var ErrLocked = errors.New("data folder is in use by another process")

// lockFolder takes the lock that keeps two processes from one folder. It ends with
// the process, however that ends.
func lockFolder(ctx context.Context, path string, deadline time.Time) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err = files.WaitLock(ctx, f, true, deadline, nil); err == nil {
		return f, nil
	}
	if errors.Is(err, files.ErrLocked) {
		err = ErrLocked
	}
	return nil, errors.Join(err, f.Close())
}
