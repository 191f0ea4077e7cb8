//go:build !unix

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// lockFolder: index files are only read here.
func lockFolder(context.Context, string, time.Time) (*os.File, error) {
	return nil, fmt.Errorf("writing: %w on this system", errors.ErrUnsupported)
}
