package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/store"
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

// Open implements [Elsewhere]. Other processes may change the files: see [store.Shared].
func (f *Files) Open(ctx context.Context, c *Config, log *slog.Logger) (collection.Set, func() error, error) {
	paths := map[string]string{}
	for _, path := range *f {
		paths[nameOf(path)] = path
	}
	return store.Shared(ctx, paths, &store.Options{
		Threads: c.Threads, Backend: c.Backend, LockTimeout: c.LockTimeout, Logger: log, Derive: store.DeriveKeywords(log),
	})
}
