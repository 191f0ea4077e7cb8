package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

// readMap reads one version. The error is [objects.ErrNotFound], that of decodeMap, or that of the store.
func readMap(ctx context.Context, s objects.Store, name string, version uint64) (*Map, error) {
	object, _, err := objects.Read(ctx, s, versionObject(name, version), maxMap)
	if errors.Is(err, objects.ErrDamaged) {
		err = fmt.Errorf("%w: %w: %w", collection.ErrDamaged, storage.ErrCorrupt, err)
	}
	if err != nil {
		return nil, err
	}
	return decodeMap(name, version, object)
}

// newestMap reads the newest map of a collection, which may have been removed. The error is [collection.ErrUnknown], or
// that of readMap.
func newestMap(ctx context.Context, s objects.Store, name string) (*Map, error) {
	if err := collection.CheckName(name); err != nil {
		return nil, err
	}
	for {
		listed, err := s.List(ctx, versionsPrefix(name), "", 0)
		if err != nil {
			return nil, err
		}
		newest := uint64(0)
		for _, e := range listed {
			if mapName, version, ok := parseVersionObject(e.Name); ok && mapName == name {
				newest = max(newest, version)
			}
		}
		if newest == 0 {
			return nil, unknownError(name)
		}
		m, err := readMap(ctx, s, name, newest)
		if !errors.Is(err, objects.ErrNotFound) { // otherwise it was replaced and deleted since: list again
			return m, err
		}
	}
}

// existingMap is newestMap, except that a removed collection is [collection.ErrUnknown].
func existingMap(ctx context.Context, s objects.Store, name string) (*Map, error) {
	m, err := newestMap(ctx, s, name)
	if err == nil && m.Removed {
		return nil, unknownError(name)
	}
	return m, err
}

// putMap puts a map as its version. The error is errTaken if another process has put that version, or if the version
// existed long ago and was deleted since. After another error the map may be there or not.
func putMap(ctx context.Context, s objects.Store, m *Map) error {
	m.Format, m.Token = mapFormat, newToken()
	if err := m.validate(); err != nil {
		return fmt.Errorf("%w: the map of %s: %w", storage.ErrInternal, m.Name, err)
	}
	body, err := m.encode()
	if err != nil {
		return err
	}
	if len(body) > maxMap {
		return fmt.Errorf("%w: the map of %s has %d bytes, at most %d are possible",
			collection.ErrConfig, m.Name, len(body), maxMap)
	}
	// Put the version, unless it exists.
	err = retryStore(ctx, func() error {
		_, err := s.Put(ctx, versionObject(m.Name, m.Version), bytes.NewReader(body), int64(len(body)))
		if err == nil {
			return nil
		}
		stored, rerr := readMap(context.WithoutCancel(ctx), s, m.Name, m.Version)
		switch {
		case rerr == nil && stored.Token == m.Token: // our map is there: the answer was lost
			return nil
		case rerr == nil, unreadable(rerr):
			return errTaken
		}
		return err
	})
	if err != nil {
		return err
	}
	// The version may have existed long ago, if this process slept and does not know the versions after it. Old
	// versions are deleted in order, so then the previous version would be missing too. For version 1, which has no
	// previous version, the next one decides: it must be of the same collection.
	return retryStore(ctx, func() error {
		first := max(m.Version, 2) - 1
		listed, err := s.List(ctx, versionsPrefix(m.Name), versionObject(m.Name, first-1), 0)
		if err != nil {
			return err
		}
		n := len(listed)
		wantFirst, wantLast := versionObject(m.Name, first), versionObject(m.Name, first+uint64(n)-1) // without gaps
		if n == 0 || listed[0].Name != wantFirst || listed[n-1].Name != wantLast {
			return errTaken
		}
		if m.Version > 1 || n == 1 {
			return nil
		}
		next, err := readMap(ctx, s, m.Name, 2)
		if err == nil && next.ID != m.ID {
			err = errTaken
		}
		return err
	})
}

// updateMap puts the next version of the map of an existing collection. change gets a copy of the newest map, and is
// called again if another process was faster. An error of change ends the update; errUnchanged leaves the map as it is.
func updateMap(ctx context.Context, s objects.Store, name string, change func(*Map) error) (*Map, error) {
	return updateMapOrRemoved(ctx, s, name, func(m *Map) error {
		if m.Removed {
			return unknownError(name)
		}
		return change(m)
	})
}

// changeIf returns a change that is made if a condition applies to the map.
func changeIf(applies func(*Map) bool, change func(*Map)) func(*Map) error {
	return func(m *Map) error {
		if !applies(m) {
			return errUnchanged
		}
		change(m)
		return nil
	}
}

// updateMapOrRemoved is updateMap for a collection that may have been removed.
func updateMapOrRemoved(ctx context.Context, s objects.Store, name string, change func(*Map) error) (*Map, error) {
	for {
		m, err := newestMap(ctx, s, name)
		if err != nil {
			return nil, err
		}
		next := m.copyMap()
		if err := change(next); errors.Is(err, errUnchanged) {
			return m, nil
		} else if err != nil {
			return nil, err
		}
		next.Version = m.Version + 1
		if err := putMap(ctx, s, next); !errors.Is(err, errTaken) {
			return next, err
		}
	}
}

// forCollection returns a change for the collection with an id. If another one has its name by now, the error is
// [collection.ErrUnknown].
func forCollection(id string, change func(*Map) error) func(*Map) error {
	return func(m *Map) error {
		if m.ID != id {
			return unknownError(id)
		}
		return change(m)
	}
}

// nameFromID returns the name in the id of a collection.
func nameFromID(id string) string { return id[:max(strings.LastIndexByte(id, '.'), 0)] }
