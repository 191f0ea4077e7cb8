package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
	"github.com/plaid-ir/plaid/vectors"
)

// Map describes a collection. It is an object of the store, maps/NAME/VERSION; a change is the next version (I7).
type Map struct {
	Format  int    `json:"format"` // 1
	Name    string `json:"name"`
	ID      string `json:"id"` // another collection of the same name has another
	Version uint64 `json:"version"`
	Token   string `json:"token"` // tells this version from that of another writer
	Removed bool   `json:"removed,omitempty"`
	// Config is as the collection was declared; MaxDocuments may change.
	Config   collection.Config `json:"config"`
	Shards   int               `json:"shards"`
	Replicas int               `json:"replicas"` // nodes that have each shard
	// Current is searched; nil means that the collection has no documents yet. Next is built to take its place, for
	// the caller with the token For if that is not "".
	Current *replica.Generation `json:"current,omitempty"`
	Next    *replica.Generation `json:"next,omitempty"`
	For     string              `json:"next_for,omitempty"`
	Last    uint64              `json:"last_generation"`
	// Training and Building are generations that have objects already, and are not Next yet: of the
	// coordinator, and of a bulk build. A maker whose reservation was replaced has lost the generation.
	Training *Reserved `json:"training,omitempty"`
	Building *Reserved `json:"building,omitempty"`
	// Wanted is the token of a caller who has asked for a training.
	Wanted string `json:"wanted,omitempty"`
	// Failed is why the last training was given up.
	Failed *Failed `json:"failed,omitempty"`
	// Retired lists generations and collections that are not used any more; their objects are deleted after the grace.
	Retired []Retired `json:"retired,omitempty"`

	readErr error // this program cannot read the object, and touches nothing of the collection
}

// Reserved is the number of a generation, and the process that makes it.
type Reserved struct {
	Generation uint64    `json:"generation"`
	By         string    `json:"by"`
	Since      time.Time `json:"since,omitzero"` // as of [Retired]
}

// holds reports whether a generation is reserved here. A nil Reserved reserves none.
func (r *Reserved) holds(generation uint64) bool { return r != nil && r.Generation == generation }

// Failed is a training that was given up.
type Failed struct {
	Tokens uint64   `json:"tokens"` // of the collection at that time
	For    string   `json:"for,omitempty"`
	Cause  *failure `json:"cause"`
}

// Retired is a generation of the collection, or all of a collection that had the name before.
type Retired struct {
	ID         string `json:"id"`
	Generation uint64 `json:"generation,omitempty"` // 0: all
	// Since is when the collector noticed it, by the clock of the store; zero: it has not.
	Since time.Time `json:"since,omitzero"`
	// Shards is how many logs of a removed collection are to be sealed yet, all; 0: none.
	Shards int `json:"shards,omitempty"`
}

const (
	mapsPrefix = "maps/"
	mapFormat  = 1
	maxMap     = 4 << 20 // bytes
	// MaxShards is how many shards a collection may have.
	MaxShards = 9999
	// MaxReplicas is how many nodes may have each shard.
	MaxReplicas = 32
)

var (
	// ErrNewer: a newer program has written something that this one does not know.
	ErrNewer = errors.New("it was written by a newer version of plaid")
	// ErrConflict: another process has changed the collection meanwhile, so that the change is not possible.
	ErrConflict = errors.New("the collection was changed by another process meanwhile")

	errUnchanged = errors.New("nothing is to be changed")
	errTaken     = errors.New("another process has put this version of the map")

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func checksum(text []byte) uint32 { return crc32.Checksum(text, castagnoli) }

func unknownError(what string) error { return fmt.Errorf("%w: %q", collection.ErrUnknown, what) }

// unreadable reports whether a map is there that this program cannot read, or must not.
func unreadable(err error) bool { return errors.Is(err, collection.ErrDamaged) }

func versionsPrefix(name string) string { return mapsPrefix + name + "/" }

func versionObject(name string, version uint64) string {
	return fmt.Sprintf("%s%016x", versionsPrefix(name), version)
}

// parseVersionObject parses the name of an object; ok is false if the object is no version of a map.
func parseVersionObject(object string) (name string, version uint64, ok bool) {
	dir, last := path.Split(strings.TrimPrefix(object, mapsPrefix))
	name = strings.TrimSuffix(dir, "/")
	version, err := strconv.ParseUint(last, 16, 64)
	return name, version, err == nil && collection.CheckName(name) == nil && versionObject(name, version) == object
}

func newToken() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// encode gives a line of JSON and a line with its checksum: one flipped bit of a name or a number would
// otherwise take effect in silence.
func (m *Map) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	return fmt.Appendf(text, "\n%08x\n", checksum(text)), err
}

// decodeMap reads a version of a map. The error is [collection.ErrDamaged], with [storage.ErrCorrupt] or [ErrNewer].
func decodeMap(name string, version uint64, object []byte) (*Map, error) {
	fault := func(err error, format string, a ...any) (*Map, error) {
		detail := fmt.Sprintf(format, a...)
		return nil, fmt.Errorf("%w: %s: %w: %s", collection.ErrDamaged, versionObject(name, version), err, detail)
	}
	text, sum, found := bytes.Cut(object, []byte("\n"))
	if !found || string(sum) != fmt.Sprintf("%08x\n", checksum(text)) {
		return fault(storage.ErrCorrupt, "its checksum is not that of its bytes")
	}
	var head struct{ Format int }
	if err := json.Unmarshal(text, &head); err != nil {
		return fault(storage.ErrCorrupt, "%v", err)
	}
	if head.Format != mapFormat {
		return fault(ErrNewer, "its format is %d, %d is known here", head.Format, mapFormat)
	}
	m := &Map{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return fault(ErrNewer, "%v", err)
	}
	if m.Name != name || m.Version != version {
		return fault(storage.ErrCorrupt, "it is version %d of %q", m.Version, m.Name)
	}
	if err := m.validate(); err != nil {
		return fault(storage.ErrCorrupt, "%v", err)
	}
	return m, nil
}

// validate refuses a map that no program may act on.
func (m *Map) validate() error {
	if err := collection.CheckName(m.Name); err != nil {
		return err
	}
	if m.Version == 0 || m.Shards < 1 || m.Shards > MaxShards || m.Replicas < 1 || m.Replicas > MaxReplicas {
		return fmt.Errorf("version %d, %d shards, %d replicas", m.Version, m.Shards, m.Replicas)
	}
	if _, err := m.Config.Completed(); err != nil {
		return err
	}
	if m.Failed != nil && m.Failed.Cause == nil {
		return errors.New("a training has failed without a cause")
	}
	ids, numbers := []string{m.ID}, []uint64{}
	for _, g := range m.generations() {
		numbers = append(numbers, g.Number)
		if g.Dim < 0 || g.Codec.Name != "" && g.Codec.Check() != nil {
			return fmt.Errorf("generation %d has the dimension %d and the codec %q", g.Number, g.Dim, g.Codec.Name)
		}
	}
	for _, r := range []*Reserved{m.Training, m.Building} {
		if r != nil {
			numbers = append(numbers, r.Generation)
		}
	}
	for _, r := range m.Retired {
		if ids = append(ids, r.ID); r.Generation == 0 {
			continue
		}
		if numbers = append(numbers, r.Generation); r.ID != m.ID {
			return fmt.Errorf("generation %d of %q is retired", r.Generation, r.ID)
		}
	}
	for _, id := range ids { // objects below data/ID/ are deleted
		suffix, hasName := strings.CutPrefix(id, m.Name+".")
		if b, err := hex.DecodeString(suffix); !hasName || err != nil || len(b) != 8 {
			return fmt.Errorf("%q is no identity of %q", id, m.Name)
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		if n == 0 || n > m.Last || i > 0 && n == numbers[i-1] {
			return fmt.Errorf("generation %d is 0, above the last one, %d, or is there twice", n, m.Last)
		}
	}
	return nil
}

// copyMap is a copy that may be changed.
func (m *Map) copyMap() *Map {
	text, err := json.Marshal(m)
	c := &Map{}
	if err = errors.Join(err, json.Unmarshal(text, c)); err != nil {
		panic(err) // it was read, or made, of the same fields
	}
	return c
}

// generations are Current and Next, as far as there are any.
func (m *Map) generations() []*replica.Generation {
	all := []*replica.Generation{m.Current, m.Next}
	return slices.DeleteFunc(all, func(g *replica.Generation) bool { return g == nil })
}

// generation returns Current or Next, by its number; nil means that neither has it.
func (m *Map) generation(number uint64) *replica.Generation {
	for _, g := range m.generations() {
		if g.Number == number {
			return g
		}
	}
	return nil
}

// isNext makes a test of whether a generation is Next.
func isNext(number uint64) func(*Map) bool {
	return func(m *Map) bool { return m.Next != nil && m.Next.Number == number }
}

func (m *Map) retire(number uint64) {
	m.Retired = append(m.Retired, Retired{ID: m.ID, Generation: number})
}

// remove lets the whole collection go.
func (m *Map) remove() {
	retired := slices.DeleteFunc(m.Retired, func(r Retired) bool { return r.Generation > 0 })
	whole := Retired{ID: m.ID}
	if m.Current != nil { // else no node has had a place for changes
		whole.Shards = m.Shards
	}
	*m = Map{
		Name: m.Name, ID: m.ID, Version: m.Version, Removed: true, Config: m.Config, Shards: m.Shards,
		Replicas: m.Replicas, Last: m.Last, Retired: append(retired, whole),
	}
}

// release lets a reservation go.
func (m *Map) release(r **Reserved) {
	if *r != nil {
		m.retire((*r).Generation)
		*r = nil
	}
}

// reserve gives out the next number of a generation, in the place of a reservation before.
func (m *Map) reserve(r **Reserved, by string) {
	m.release(r)
	m.Last++
	*r = &Reserved{Generation: m.Last, By: by}
}

// promote makes a generation that is built the one that is searched. No other that is being built for the
// collection is of use then.
func (m *Map) promote(g *replica.Generation) {
	for _, other := range m.generations() {
		if other.Number != g.Number {
			m.retire(other.Number)
		}
	}
	m.release(&m.Training)
	m.Current, m.Next, m.For, m.Failed = g, nil, "", nil
}

// giveUpNext lets Next go.
func (m *Map) giveUpNext(why error) {
	m.retire(m.Next.Number)
	m.Failed = &Failed{m.Next.Trained, m.For, newFailure(why)}
	m.Next, m.For = nil, ""
}

// shardOf is the shard of a document; passages are in that of their document.
func (m *Map) shardOf(id string) int { return index.HashShard(documentIDOf(id), m.Shards) }

// documentIDOf is the id of the document that a passage of an id belongs to. An id of that form that is none of a
// passage has the same place, since it cannot be told from one where it is looked up.
func documentIDOf(id string) string {
	for {
		document, number := vectors.SplitPassageID(id)
		if number < 0 || document == "" {
			return id
		}
		id = document
	}
}

// maxDocumentsOf is the share of a shard of max_documents; nil means no limit.
func (m *Map) maxDocumentsOf(shard int) *uint64 {
	if m.Config.MaxDocuments == nil {
		return nil
	}
	n, s, shards := *m.Config.MaxDocuments, uint64(shard), uint64(m.Shards)
	first := func(i uint64) uint64 { return n/shards*i + n%shards*i/shards } // of the shards before i, together
	share := first(s+1) - first(s)
	return &share
}

// replicaShard says which shard a replica of a generation is of.
func (m *Map) replicaShard(number int, g *replica.Generation) replica.Shard {
	cfg := m.Config
	cfg.MaxDocuments = m.maxDocumentsOf(number)
	return replica.Shard{Collection: m.ID, Number: number, Generation: *g, Config: cfg}
}

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

// newestMap reads the newest map of a collection, which may say that it was removed. The error is
// [collection.ErrUnknown], or that of readMap.
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
		if !errors.Is(err, objects.ErrNotFound) { // else it was superseded, and deleted, since
			return m, err
		}
	}
}

// existingMap is newestMap of a collection that was not removed, else [collection.ErrUnknown].
func existingMap(ctx context.Context, s objects.Store, name string) (*Map, error) {
	m, err := newestMap(ctx, s, name)
	if err == nil && m.Removed {
		return nil, unknownError(name)
	}
	return m, err
}

// putMap puts a map as its version. The error is errTaken if another process has put that, or if the version
// was there before, and is so old that it was deleted; after others it is not known whether it is there.
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
	err = retryStore(ctx, func() error {
		_, err := s.Put(ctx, versionObject(m.Name, m.Version), bytes.NewReader(body), int64(len(body)))
		if err == nil {
			return nil
		}
		there, rerr := readMap(context.WithoutCancel(ctx), s, m.Name, m.Version)
		switch {
		case rerr == nil && there.Token == m.Token: // the answer was lost
			return nil
		case rerr == nil, unreadable(rerr):
			return errTaken
		}
		return err
	})
	if err != nil {
		return err
	}
	// The version may have been there long ago: a process that slept meanwhile does not know of the
	// versions after it. Old ones are deleted in their order, so that the one before would be gone too.
	return retryStore(ctx, func() error {
		first := max(m.Version, 2) - 1
		listed, err := s.List(ctx, versionsPrefix(m.Name), versionObject(m.Name, first-1), 0)
		if err != nil {
			return err
		}
		n := len(listed)
		if n == 0 || listed[0].Name != versionObject(m.Name, first) || listed[n-1].Name != versionObject(m.Name, first+uint64(n)-1) {
			return errTaken
		}
		if m.Version > 1 || n == 1 {
			return nil
		}
		next, err := readMap(ctx, s, m.Name, 2) // no version before the first one would be gone
		if err == nil && next.ID != m.ID {
			err = errTaken
		}
		return err
	})
}

// updateMap makes the next version of the map of a collection that is there: change gets a copy of the newest
// one, and may get another. Its error ends the update; errSame means that the map stays.
func updateMap(ctx context.Context, s objects.Store, name string, change func(*Map) error) (*Map, error) {
	return updateMapOrRemoved(ctx, s, name, func(m *Map) error {
		if m.Removed {
			return unknownError(name)
		}
		return change(m)
	})
}

// changeIf makes a change of maps that it fits; others stay.
func changeIf(applies func(*Map) bool, change func(*Map)) func(*Map) error {
	return func(m *Map) error {
		if !applies(m) {
			return errUnchanged
		}
		change(m)
		return nil
	}
}

// updateMapOrRemoved is updateMap of a collection that may have been removed.
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

// forCollection makes a change that is for the collection of an identity: another one of the name is [collection.ErrUnknown].
func forCollection(id string, change func(*Map) error) func(*Map) error {
	return func(m *Map) error {
		if m.ID != id {
			return unknownError(id)
		}
		return change(m)
	}
}

// nameFromID is the name of the collection of an identity.
func nameFromID(id string) string { return id[:max(strings.LastIndexByte(id, '.'), 0)] }
