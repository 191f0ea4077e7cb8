package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/objects"
)

// Store keeps maps. Each version of a map is an object, and a version that is there
// is never written again: that is what decides between two changes at a time, and what
// a cluster is restored from. The bucket of JetStream shows the newest version to those
// who watch; it may lag behind by what a process that died did not get to say, which
// the next change makes up for, and it may be lost.
type Store struct {
	objects objects.Store
	kv      jetstream.KeyValue
}

// NewStore returns a store of maps; kv is the bucket that shows them.
func NewStore(o objects.Store, kv jetstream.KeyValue) *Store { return &Store{o, kv} }

const maxMap = 16 << 20 // bytes

func prefix(collection string) string { return "maps/" + collection + "/" }

func object(collection string, version uint64) string {
	return fmt.Sprintf("%s%016d.json", prefix(collection), version)
}

// Get returns the map that is shown, and the revision of the bucket; the error is
// [ErrNoCollection] if there is none.
func (s *Store) Get(ctx context.Context, collection string) (*Map, error) {
	m, _, err := s.get(ctx, collection)
	return m, err
}

func (s *Store) get(ctx context.Context, collection string) (*Map, uint64, error) {
	if err := CheckName(collection); err != nil {
		return nil, 0, err
	}
	ctx, stop := context.WithTimeout(ctx, 3*bus.Attempt)
	defer stop()
	e, err := s.kv.Get(ctx, collection)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, fmt.Errorf("%w: %s", ErrNoCollection, collection)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("map of %s: %w", collection, err)
	}
	m, err := Decode(e.Value())
	return m, e.Revision(), err
}

// Create makes the first version of a map.
func (s *Store) Create(ctx context.Context, m *Map) error {
	m.Version = 1
	text, err := m.Encode()
	if err != nil {
		return err
	}
	err = s.objects.Put(ctx, object(m.Collection, 1), bytes.NewReader(text), int64(len(text)))
	if errors.Is(err, objects.ErrExists) {
		return fmt.Errorf("%w: %s", ErrExists, m.Collection)
	}
	if err != nil {
		return err
	}
	return s.show(ctx, m)
}

// Update makes the next version of a map. If another change comes first, change is
// called again, with what that one made. Its error ends the update.
func (s *Store) Update(ctx context.Context, collection string, change func(*Map) error) (*Map, error) {
	for {
		now, _, err := s.get(ctx, collection)
		if err != nil {
			return nil, err
		}
		// Another process may have died between making a version and showing it.
		for {
			next, err := s.read(ctx, object(collection, now.Version+1))
			if errors.Is(err, objects.ErrNotFound) {
				break
			}
			if err != nil {
				return nil, err
			}
			now = next
		}
		next, err := now.clone()
		if err != nil {
			return nil, err
		}
		if err := change(next); err != nil {
			return nil, err
		}
		next.Version = now.Version + 1
		text, err := next.Encode()
		if err != nil {
			return nil, err
		}
		err = s.objects.Put(ctx, object(collection, next.Version), bytes.NewReader(text), int64(len(text)))
		if errors.Is(err, objects.ErrExists) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return next, s.show(ctx, next)
	}
}

// show puts a version where it is watched, unless a later one is there.
func (s *Store) show(ctx context.Context, m *Map) error {
	text, err := m.Encode()
	if err != nil {
		return err
	}
	for {
		shown, revision, err := s.get(ctx, m.Collection)
		switch {
		case errors.Is(err, ErrNoCollection):
			_, err = s.kv.Create(ctx, m.Collection, text)
		case err != nil:
			return err
		case shown.Version >= m.Version:
			return nil
		default:
			_, err = s.kv.Update(ctx, m.Collection, text, revision)
		}
		var api *jetstream.APIError
		switch {
		case err == nil:
			return nil
		case errors.Is(err, jetstream.ErrKeyExists), errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
			continue // somebody was faster
		}
		return fmt.Errorf("map of %s: %w", m.Collection, err)
	}
}

func (s *Store) read(ctx context.Context, name string) (*Map, error) {
	r, err := s.objects.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxMap))
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", name, err)
	}
	m, err := Decode(text)
	if err != nil {
		return nil, fmt.Errorf("object %s: %w", name, err)
	}
	return m, nil
}

// Collections are the names of the collections of an object store.
func (s *Store) Collections(ctx context.Context) ([]string, error) {
	all, err := s.objects.List(ctx, "maps/")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range all {
		dir, _ := path.Split(name)
		if c := path.Base(dir); len(names) == 0 || names[len(names)-1] != c {
			names = append(names, c)
		}
	}
	return names, nil
}

// Recover shows the newest version that the object store has, which is all that is
// left of a map when JetStream has lost its files.
func (s *Store) Recover(ctx context.Context, collection string) (*Map, error) {
	if err := CheckName(collection); err != nil {
		return nil, err
	}
	names, err := s.objects.List(ctx, prefix(collection))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoCollection, collection)
	}
	m, err := s.read(ctx, names[len(names)-1])
	if err != nil {
		return nil, err
	}
	return m, s.show(ctx, m)
}
