package command

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/daemon"
	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

// registerStore adds the flag for an object store.
func registerStore(f *pflag.FlagSet, address *string) {
	f.StringVar(address, "store", "", daemon.StoreUsage)
}

// withStore opens the collections of a store and hands them to use. Requests go to the services
// that share the store.
func (op *opener) withStore(ctx context.Context, address string, c cluster.Config,
	use func(*cluster.Cluster, objects.Store) error) (err error) {
	if c.Store, err = daemon.OpenStore(address); err != nil {
		return err
	}
	if c.Dir, err = os.MkdirTemp("", "plaid-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.Dir)) }()
	c.StoreAddress, c.Logger = address, op.logger()
	collections, err := cluster.Open(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, collections.Close(context.WithoutCancel(ctx))) }()
	return use(collections, c.Store)
}

// findStoreIndex finds a collection. The error about an unknown one lists the existing ones.
func findStoreIndex(collections *cluster.Cluster, name string) (collection.Collection, error) {
	c, err := collections.Get(name)
	if errors.Is(err, collection.ErrUnknown) {
		err = fmt.Errorf("%s: %w; %s", collections.Location(), err, availableIndexes(collections.Names(), name))
	}
	return c, err
}

// searchStore answers questions and queries with a collection of a store.
func (a *app) searchStore(ctx context.Context, store string, args []string, words *flags.Words, answers *answerer,
	o search.Options, stats string) error {
	s, name := answers.flags, args[0]
	return a.withStore(ctx, store, cluster.Config{}, func(collections *cluster.Cluster, _ objects.Store) (err error) {
		storeIndex, err := findStoreIndex(collections, name)
		if err != nil {
			return err
		}
		engine := collection.NewSearcher(storeIndex)
		defer func() { err = errors.Join(err, engine.Close()) }()
		d, err := engine.Describe(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m := a.newStoreWordSearch(words, engine, o, int(d.Docs+d.Passages))
		// Search by words needs no encoder.
		if words.WordsOnly() {
			ids, texts, err := a.readQuestions(ctx, &s.Queries, args[1:])
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := answers.printed.checkID("query", id); err != nil {
					return err
				}
			}
			return m.answerWords(ctx, ids, texts, len(args) > 1, nil, answers.write)
		}
		indexModel := func() (*storage.Model, string, error) { return d.Model, name, nil }
		if answers.queries, err = a.openQueriesFor(ctx, &s.Queries, args[1:], s.Threads, &s.Device,
			indexModel); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, answers.queries.Close()) }()
		if err := checkQueries(answers.queries, name, d.Model, d.Dim); err != nil {
			return err
		}
		if err := answers.printed.checkIDs("query", answers.queries); err != nil {
			return err
		}
		a.warnWithoutCandidates(s, answers.queries)
		if answers.highlight {
			answers.queries.highlighter = &highlighter{encoder: answers.queries.encoder, warn: a.printWarning,
				poolFactor: func(int) int { return d.Pool }}
		}
		if words.Hybrid {
			err = m.answerHybrid(ctx, args[1:], answers, engine, o)
		} else {
			err = answers.answerRemaining(ctx, engine, o, nil)
		}
		if err != nil {
			return err
		}
		return a.printStats(stats, answers.total)
	})
}

// newStoreWordSearch returns the word search of a collection, whose keywords are always ready.
func (a *app) newStoreWordSearch(f *flags.Words, engine *collection.Searcher, o search.Options, docs int) *wordSearch {
	return &wordSearch{
		app:      a,
		flags:    f,
		options:  o,
		docCount: docs,
		open:     func(_ context.Context, use func() error) error { return use() },
		rank: func(ctx context.Context, text string, k int) ([]search.Hit, error) {
			q := collection.KeywordQuery{
				Text:    text,
				Mode:    f.Query(k).Mode,
				K:       k,
				Payload: o.Payload,
			}
			if o.Group != "" {
				q.Passages = o.Passages
			}
			if o.Filter != nil {
				q.Filters = []*search.Filter{o.Filter}
			}
			return engine.SearchKeywords(ctx, q)
		},
	}
}
