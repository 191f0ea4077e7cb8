package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/cli/flags"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// querySet is queries in memory: a batch, or all of a command that measures.
type querySet struct {
	ids []string
	qs  []search.Query
}

// named puts the id of a query in the place of its number in an error.
func (q *querySet) named(err error) error {
	if failed := (*search.QueryError)(nil); errors.As(err, &failed) && failed.Index < len(q.ids) {
		return fmt.Errorf("query %q: %w", q.ids[failed.Index], failed.Err)
	}
	return err
}

// measure opens an index, reads all queries and makes an engine for use.
func (a *app) measure(ctx context.Context, path string, files *flags.Queries, threads int, use func(*search.Engine, *index.Snapshot, *querySet) error) (err error) {
	queries, err := files.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queries.Close()) }()
	return a.openSnapshot(ctx, path, func(_ *index.Index, snap *index.Snapshot) error {
		if err := checkQueries(files.Vectors, queries, snap); err != nil {
			return err
		}
		if queries.Len() == 0 {
			return fmt.Errorf("%s: %w: there are none", files.Vectors, search.ErrQuery)
		}
		set, err := readQueries(ctx, queries, 0, queries.Len())
		if err != nil {
			return err
		}
		return a.withEngine(ctx, snap, threads, nil, func(e *search.Engine) error {
			return set.named(use(e, snap, set))
		})
	})
}

// checkQueries finds queries that do not fit the index before any is answered.
func checkQueries(path string, queries vectors.Source, snap *index.Snapshot) error {
	if d := queries.Dim(); d != 0 && d != snap.Dim() {
		return fmt.Errorf("%s: %w: queries have %d, %s has %d", path, index.ErrDimension, d, snap.Path(), snap.Dim())
	}
	for i := range queries.Len() {
		if queries.Rows(i) == 0 {
			return fmt.Errorf("%s: query %q: %w: it has no tokens", path, queries.ID(i), search.ErrQuery)
		}
	}
	return nil
}

// readQueries reads the queries from lo to hi (exclusive).
func readQueries(ctx context.Context, src vectors.Source, lo, hi int) (*querySet, error) {
	set := &querySet{}
	for d, err := range src.Docs(ctx, lo, hi) {
		if err != nil {
			return nil, err
		}
		set.qs = append(set.qs, search.Query{Vectors: append([]float32(nil), d.Tokens...), Dim: src.Dim()})
		set.ids = append(set.ids, d.ID)
	}
	return set, nil
}
