package topology

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A name may be used again when the collection that had it was removed. So whatever
// outlives a message (files, logs, objects, leases) is named by the identity of a
// collection, and so is what a message is about: what belongs to one collection is
// never taken for that of another.

var (
	// ErrRemoved: the collection was removed. It wraps [ErrNoCollection].
	ErrRemoved = fmt.Errorf("%w any more: it was removed", ErrNoCollection)
	// ErrReplaced: the collection was removed, and another one has its name. It wraps
	// [ErrRemoved]; whoever finds the collection by its name again gets the other.
	ErrReplaced = fmt.Errorf("%w, and another one has its name now", ErrRemoved)
)

// maxFormer is how many collections that had the name a map remembers.
const maxFormer = 64

// NewIncarnation returns what tells a new collection from others of its name: 16 random
// hexadecimal digits.
func NewIncarnation() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ID is the identity of the collection: its name, @, and its incarnation; without one, the
// name alone.
func (m *Map) ID() string {
	if m.Incarnation == "" {
		return m.Collection
	}
	return m.Collection + "@" + m.Incarnation
}

// NameOf is the name of the collection of an identity.
func NameOf(id string) string {
	name, _, _ := strings.Cut(id, "@")
	return name
}

// CheckID refuses what is no identity ([ErrMap]).
func CheckID(id string) error {
	name, incarnation, there := strings.Cut(id, "@")
	if err := CheckName(name); err != nil {
		return err
	}
	if there {
		return checkIncarnation(incarnation)
	}
	return nil
}

func checkIncarnation(s string) error {
	if b, err := hex.DecodeString(s); err != nil || len(b) != 8 || strings.ToLower(s) != s {
		return fmt.Errorf("%w: the incarnation %q is not 16 hexadecimal digits", ErrMap, s)
	}
	return nil
}

// Removes tells whether the map says that the collection of an identity was removed.
func (m *Map) Removes(id string) bool {
	return m.Removed && m.ID() == id || slices.Contains(m.Former, id)
}

// is returns an error unless the map is that of the collection of an identity, which was
// not removed. A map that knows nothing of the identity may be older than that.
func (m *Map) is(id string) error {
	switch {
	case !m.Removed && m.ID() == id:
		return nil
	case !m.Removes(id):
		return fmt.Errorf("%w: %s", ErrNoCollection, id)
	case m.Removed:
		return fmt.Errorf("%w: %s", ErrRemoved, id)
	}
	return fmt.Errorf("%w: %s", ErrReplaced, id)
}

// follow makes a new map the next one after that of a removed collection. Versions and
// generations go on from there, so that their numbers are never those of others.
func (m *Map) follow(removed *Map) {
	m.Version, m.Last = removed.Version+1, removed.Last
	m.Former = append([]string{removed.ID()}, removed.Former...)
	m.Former = m.Former[:min(len(m.Former), maxFormer)]
}

// remove makes of a map what is left of a removed collection. What it consisted of is
// known by its identity.
func (m *Map) remove() {
	m.Removed, m.Current, m.Next, m.Reserved, m.Settings = true, nil, nil, nil, nil
}

// checkIdentity is the part of Check about identities.
func (m *Map) checkIdentity() error {
	if m.Incarnation != "" {
		if err := checkIncarnation(m.Incarnation); err != nil {
			return err
		}
	}
	if m.Removed && (m.Current != nil || m.Next != nil) {
		return errors.New("it is removed and has generations")
	}
	for _, id := range m.Former {
		if err := CheckID(id); err != nil {
			return err
		}
		if NameOf(id) != m.Collection || id == m.ID() {
			return fmt.Errorf("%s was to be before %s", id, m.ID())
		}
	}
	return nil
}
