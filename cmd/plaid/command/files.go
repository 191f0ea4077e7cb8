package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/internal/files"
)

// writeFile writes a file that appears when it is complete; flag names it in an
// error. The index is never overwritten. What names the program's stdout goes
// there: to put a new file in its place would take the rest of the output away.
func (t *stdio) writeFile(ctx context.Context, flag, path, index string, fill func(io.Writer) error) error {
	if t.isStdout(path) {
		return fill(t.out)
	}
	err := files.WriteAtomic(ctx, path, fill, index)
	if errors.Is(err, files.ErrSame) {
		return flags.Usagef("--%s names the index itself", flag)
	}
	return err
}

// checkOutput finds out whether a file can be written before there is anything to
// write, so that nobody waits for a result that is lost then.
func (t *stdio) checkOutput(flag, path string) error {
	if path == "" || t.isStdout(path) {
		return nil
	}
	if err := files.CanCreate(path); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return nil
}

// isStdout tells whether a path, such as /dev/stdout, is where results go.
func (t *stdio) isStdout(path string) bool {
	out, ok := t.stdout.(*os.File)
	if !ok {
		return false
	}
	there, err := os.Stat(path)
	if err != nil {
		return false
	}
	info, err := out.Stat()
	return err == nil && os.SameFile(there, info)
}
