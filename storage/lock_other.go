//go:build !unix

package storage

import (
	"context"
	"errors"
	"os"
	"time"
)

// lock leaves it to bbolt: files are only read here.
func lock(context.Context, *os.File, bool, time.Time) error { return nil }

func lockShared(*os.File) error    { return nil }
func lockExclusive(*os.File) error { return errors.ErrUnsupported } // nothing is swept
func unlock(*os.File)              {}
func links(os.FileInfo) int        { return 1 }

func owner(os.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }

func identity(os.FileInfo) (device, inode uint64) { return 0, 0 }
