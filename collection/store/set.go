package store

import (
	"context"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
)

// Set is the store as a service takes it: its collections, behind the interfaces of
// package collection. It stays open until the store is closed.
func (s *Store) Set() collection.Set { return set{s} }

// set gives collections and views as what they implement.
type set struct{ *Store }

// Place implements [collection.Set].
func (s set) Place() string { return s.place() }

var (
	_ collection.Set      = set{}
	_ collection.Disker   = set{}
	_ collection.Panicker = set{}
	_ collection.Restorer = set{}

	_ collection.Collection = member{}
	_ collection.Backuper   = member{}
	_ collection.Retrainer  = member{}
	_ collection.Verifier   = member{}

	_ collection.View      = (*View)(nil)
	_ collection.Explainer = (*View)(nil)
	_ collection.Keywords  = (*View)(nil)
	_ collection.Faceter   = (*View)(nil)
	_ collection.Measured  = (*View)(nil)
)

// Get implements [collection.Set].
func (s set) Get(name string) (collection.Collection, error) { return asMember(s.Store.Get(name)) }

// Declare implements [collection.Set].
func (s set) Declare(ctx context.Context, name string, c collection.Config) (collection.Collection, error) {
	return asMember(s.Store.Declare(ctx, name, c))
}

type member struct{ *Collection }

func asMember(c *Collection, err error) (collection.Collection, error) {
	if err != nil {
		return nil, err
	}
	return member{c}, nil
}

// View implements [collection.Collection].
func (m member) View(ctx context.Context) (collection.View, error) {
	v, err := m.Collection.View(ctx)
	if err != nil {
		return nil, err // and no nil of a type
	}
	return v, nil
}

// Retrain implements [collection.Retrainer].
func (m member) Retrain(ctx context.Context) (*index.RetrainReport, error) {
	return m.Collection.Retrain(ctx, RetrainOptions{})
}
