package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/plaid-ir/plaid/cluster/bus"
	"github.com/plaid-ir/plaid/cluster/objects"
)

// Store keeps maps. Each version of a map is an object, and a version that is there
// is never written again: that is what decides between two changes at a time, and what
// a cluster is restored from. Versions that are old go, the first ones first; see
// [Store.DropOld]. The bucket of JetStream shows the newest version to those
// who watch; it may lag behind by what a process that died did not get to say, which
// the next change makes up for, and it may be lost.
type Store struct {
	objects objects.Store
	kv      jetstream.KeyValue
}

// NewStore returns a store of maps; kv is the bucket that shows them.
func NewStore(o objects.Store, kv jetstream.KeyValue) *Store { return &Store{o, kv} }

// maxMap is how many bytes a map has at most: it is shown in one message.
const maxMap = bus.MaxPayload - 4<<10

func prefix(collection string) string { return "maps/" + collection + "/" }

func object(collection string, version uint64) string {
	return fmt.Sprintf("%s%016d.json", prefix(collection), version)
}

// Get returns the map of the collection that has a name, as it is shown; the error is
// [ErrNoCollection] if there is none, or [ErrRemoved].
func (s *Store) Get(ctx context.Context, name string) (*Map, error) {
	m, _, err := s.shown(ctx, name)
	if err == nil && m.Removed {
		err = m.is(m.ID())
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Find returns the map of the collection of an identity. The error is as that of Get, or
// [ErrReplaced].
func (s *Store) Find(ctx context.Context, id string) (*Map, error) {
	m, _, err := s.shown(ctx, NameOf(id))
	if err == nil {
		err = m.is(id)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// shown is the map that is shown under a name, also that of a removed collection, and the
// revision of the bucket.
func (s *Store) shown(ctx context.Context, name string) (*Map, uint64, error) {
	if err := CheckName(name); err != nil {
		return nil, 0, err
	}
	ctx, stop := context.WithTimeout(ctx, 3*bus.Attempt)
	defer stop()
	e, err := s.kv.Get(ctx, name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, fmt.Errorf("%w: %s", ErrNoCollection, name)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("map of %s: %w", name, err)
	}
	m, err := Decode(e.Value())
	return m, e.Revision(), err
}

// Newest is the last version of a map that there is, also that of a removed collection:
// a process may have died before it was shown, and what is shown may have been lost, or
// be all that is left.
func (s *Store) Newest(ctx context.Context, name string) (*Map, error) {
	m, _, err := s.shown(ctx, name)
	if err != nil && !errors.Is(err, ErrNoCollection) {
		return nil, err
	}
	stored, serr := s.stored(ctx, name)
	switch {
	case errors.Is(serr, ErrNoCollection):
		return m, err
	case serr != nil:
		return nil, serr
	case m == nil || stored.Version > m.Version:
		return stored, nil
	}
	return m, nil
}

// stored is the newest version that the object store has.
func (s *Store) stored(ctx context.Context, name string) (*Map, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	names, err := s.objects.List(ctx, prefix(name))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoCollection, name)
	}
	return s.read(ctx, names[len(names)-1].Name)
}

// Create makes the first version of a map, or the next one where the name was that of a
// collection that was removed: m gets the numbers that follow. The error is [ErrExists]
// if there is a collection of the name.
func (s *Store) Create(ctx context.Context, m *Map) error {
	for {
		m.Version = 1
		before, err := s.Newest(ctx, m.Collection)
		switch {
		case errors.Is(err, ErrNoCollection):
		case err != nil:
			return err
		case !before.Removed:
			// Whoever made it may have died before it was shown.
			return errors.Join(fmt.Errorf("%w: %s", ErrExists, m.Collection), s.show(ctx, before))
		default:
			m.follow(before)
		}
		err = s.put(ctx, m)
		if errors.Is(err, objects.ErrExists) {
			continue // another one was faster, and is looked at
		}
		return err
	}
}

// put writes a version and shows it. The error is [objects.ErrExists] if another process
// has written one of that number.
func (s *Store) put(ctx context.Context, m *Map) error {
	text, err := m.Encode()
	if err == nil && len(text) > maxMap {
		err = fmt.Errorf("%w: %s, version %d: it has %d bytes, at most %d are possible", ErrMap, m.Collection, m.Version, len(text), maxMap)
	}
	if err != nil {
		return err
	}
	if err := s.objects.Put(ctx, object(m.Collection, m.Version), bytes.NewReader(text), int64(len(text))); err != nil {
		return err
	}
	return s.show(ctx, m)
}

// Update makes the next version of the map of a collection, which an identity says, so
// that what began with one collection never goes on with another. If another change comes
// first, change is called again, with what that one made. Its error ends the update.
func (s *Store) Update(ctx context.Context, id string, change func(*Map) error) (*Map, error) {
	for {
		now, _, err := s.shown(ctx, NameOf(id))
		if err == nil {
			now, err = s.latest(ctx, now)
		}
		if err != nil {
			return nil, err
		}
		if err := now.is(id); err != nil {
			return nil, err
		}
		next, err := now.clone()
		if err != nil {
			return nil, err
		}
		if err := change(next); err != nil {
			return nil, err
		}
		next.Version = now.Version + 1
		err = s.put(ctx, next)
		if errors.Is(err, objects.ErrExists) {
			continue
		}
		return next, err
	}
}

// latest is the last version there is from one on that is shown: another process may have died
// between making a version and showing it. What is shown may also be so old that the versions
// after it are dropped, where JetStream has come back with what it had long ago.
func (s *Store) latest(ctx context.Context, shown *Map) (*Map, error) {
	now := shown
	for {
		next, err := s.read(ctx, object(now.Collection, now.Version+1))
		if errors.Is(err, objects.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		now = next
	}
	if now != shown {
		return now, nil
	}
	there, err := s.objects.List(ctx, object(now.Collection, now.Version))
	if err != nil || len(there) > 0 { // versions are dropped in their order
		return now, err
	}
	stored, err := s.stored(ctx, now.Collection)
	switch {
	case errors.Is(err, ErrNoCollection) || err == nil && stored.Version < now.Version: // objects were removed by hand
		return now, nil
	case err != nil:
		return nil, err
	}
	return stored, nil
}

// keptVersions is how many versions of a map stay at least.
const keptVersions = 8

// DropOld removes versions of maps that were made before a time and are not among the last ones
// of their map. Whoever makes the next version has to come to an end before that time is over:
// it must find the one that it begins with.
func (s *Store) DropOld(ctx context.Context, before time.Time) (dropped int, err error) {
	all, err := s.objects.List(ctx, "maps/")
	if err != nil {
		return 0, err
	}
	for len(all) > 0 {
		dir := path.Dir(all[0].Name)
		n := slices.IndexFunc(all, func(e objects.Entry) bool { return path.Dir(e.Name) != dir })
		if n < 0 {
			n = len(all)
		}
		for _, e := range all[:max(n-keptVersions, 0)] { // the first ones first, see latest
			if !e.Made.Before(before) {
				break
			}
			if err := s.objects.Delete(ctx, e.Name); err != nil {
				return dropped, err
			}
			dropped++
		}
		all = all[n:]
	}
	return dropped, nil
}

// Remove says of the collection that has a name that it is removed, which everybody who
// watches hears, and returns what says so. Of one that was removed already, be it a moment
// ago, it says so again: existed is false then.
func (s *Store) Remove(ctx context.Context, name string) (m *Map, existed bool, err error) {
	m, err = s.Newest(ctx, name)
	if err != nil {
		return nil, false, err
	}
	if err := s.show(ctx, m); err != nil || m.Removed {
		return m, false, err
	}
	gone, err := s.Update(ctx, m.ID(), func(m *Map) error { m.remove(); return nil })
	if errors.Is(err, ErrRemoved) && !errors.Is(err, ErrReplaced) { // another removal was faster
		now, nerr := s.Newest(ctx, name)
		if nerr != nil {
			return nil, false, nerr
		}
		if now.Removed {
			return now, false, s.show(ctx, now)
		}
	}
	return gone, err == nil, err
}

// show puts a version where it is watched, unless a later one is there.
func (s *Store) show(ctx context.Context, m *Map) error {
	text, err := m.Encode()
	if err != nil {
		return err
	}
	for {
		shown, revision, err := s.shown(ctx, m.Collection)
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
	for _, e := range all {
		dir, _ := path.Split(e.Name)
		if c := path.Base(dir); len(names) == 0 || names[len(names)-1] != c {
			names = append(names, c)
		}
	}
	return names, nil
}

// Recover shows the newest version that the object store has, which is all that is
// left of a map when JetStream has lost its files. The error is [ErrRemoved] if it says
// that the collection was removed.
func (s *Store) Recover(ctx context.Context, name string) (*Map, error) {
	m, err := s.stored(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := s.show(ctx, m); err != nil {
		return nil, err
	}
	return m, m.is(m.ID())
}
