// Package pipe opens files that make their opener wait, as a named pipe does until its
// other end is opened. [OpenPipe] ends with a context.
package files

import (
	"context"
	"os"
)

// OpenPipe is [os.OpenFile] of a file that is there, until the context ends; a file that is
// opened later is closed again.
func OpenPipe(ctx context.Context, path string, flag int) (*os.File, error) {
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened)
	go func() {
		f, err := os.OpenFile(path, flag, 0)
		select {
		case done <- opened{f, err}:
		case <-ctx.Done():
			if err == nil {
				f.Close()
			}
		}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case o := <-done:
		return o.f, o.err
	}
}
