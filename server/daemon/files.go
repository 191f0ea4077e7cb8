package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/server/collection"
	"github.com/plaid-ir/plaid/server/store"
)

// Files are paths of index files that are served, and not changed. Each is named by its
// file name without .plaid.
type Files []string

func nameOf(path string) string { return strings.TrimSuffix(filepath.Base(path), ".plaid") }

// Check implements [Elsewhere].
func (f *Files) Check() (bool, error) {
	names := map[string]string{}
	for _, path := range *f {
		name := nameOf(path)
		if err := collection.CheckName(name); err != nil {
			return true, fmt.Errorf("%s: %w", path, err)
		}
		if other, twice := names[name]; twice {
			return true, fmt.Errorf("%s and %s have the same name", other, path)
		}
		names[name] = path
	}
	return len(*f) > 0, nil
}

// Open implements [Elsewhere].
func (f *Files) Open(ctx context.Context, c *Config, log *slog.Logger) (collection.Set, func() error, error) {
	var open []*index.Index
	end := func() (err error) {
		for _, ix := range open {
			err = errors.Join(err, ix.Close())
		}
		return err
	}
	given := map[string]store.Opened{}
	for _, path := range *f {
		ix, err := index.Open(ctx, path, &index.Options{LockTimeout: c.LockTimeout, Backend: c.Backend, Logger: log})
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		open = append(open, ix)
		given[nameOf(path)] = store.Opened{Index: ix}
	}
	st, err := store.Over(ctx, given, &store.Options{Threads: c.Threads, Backend: c.Backend, Logger: log, Derive: store.DeriveKeywords(log)})
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return st.Set(), func() error { return errors.Join(st.Close(context.WithoutCancel(ctx)), end()) }, nil
}
