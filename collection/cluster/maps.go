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

// Map describes a collection. It is an object of the store, maps/NAME/VERSION; a change is the next version.
type Map struct {
	Format  int    `json:"format"` // 1
	Name    string `json:"name"`
	ID      string `json:"id"` // its identity: another collection of the name has another
	Version uint64 `json:"version"`
	Token   string `json:"token"` // tells who has put this version
	Removed bool   `json:"removed,omitempty"`
	// Config is as the collection was declared; MaxDocuments may change.
	Config collection.Config `json:"config"`
	Shards int               `json:"shards"`
	// Replicas is how many nodes have each shard.
	Replicas int `json:"replicas"`
	// Current is what is searched; nil: nothing yet. Next is built to take its place, for whoever has
	// the token For if that is not "".
	Current *replica.Generation `json:"current,omitempty"`
	Next    *replica.Generation `json:"next,omitempty"`
	For     string              `json:"next_for,omitempty"`
	Last    uint64              `json:"last_generation"`
	// Training and Building are numbers of generations that have objects already, and are not Next yet:
	// of the coordinator, and of a bulk build. Whoever has lost the reservation has lost the generation.
	Training *Reserved `json:"training,omitempty"`
	Building *Reserved `json:"building,omitempty"`
	// Wanted is the token of somebody who has asked for a training, whatever has grown.
	Wanted string `json:"wanted,omitempty"`
	// Failed is why the last training was given up.
	Failed *Failed `json:"failed,omitempty"`
	// Trouble is why nodes could not encode shards for Next.
	Trouble []Trouble `json:"trouble,omitempty"`
	// Retired are generations, and Gone former collections of the name, whose objects are removed when
	// the grace is over.
	Retired []Retired `json:"retired,omitempty"`
	Gone    []Gone    `json:"gone,omitempty"`

	fault error // the object cannot be read by this program, and nothing of the collection is touched
}

// Reserved is the number of a generation, and who makes that.
type Reserved struct {
	Generation uint64    `json:"generation"`
	By         string    `json:"by"`
	Since      time.Time `json:"since,omitzero"` // as of [Retired]
}

// Failed is a training that was given up.
type Failed struct {
	Tokens uint64 `json:"tokens"` // of the collection at that time
	For    string `json:"for,omitempty"`
	Reason string `json:"reason"`
}

// Trouble is why a node could not encode a shard.
type Trouble struct {
	Shard  int    `json:"shard"`
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// Retired is a generation that is not searched any more.
type Retired struct {
	Generation uint64 `json:"generation"`
	// Since is when that was noticed, by the clock of the store; zero: it is not noticed yet.
	Since time.Time `json:"since,omitzero"`
}

// Gone is a collection that was removed.
type Gone struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since,omitzero"` // as of [Retired]
	// Shards is how many logs are to be sealed yet, all; 0: none.
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
	// ErrConflict: another process has changed the collection meanwhile, so that it is not possible any more.
	ErrConflict = errors.New("the collection was changed by another process meanwhile")

	errSame = errors.New("nothing is to be changed")
	// errTaken: another process has put the version.
	errTaken = errors.New("this version of the map is another's")

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func checksum(text []byte) uint32 { return crc32.Checksum(text, castagnoli) }

func mapsOf(name string) string { return mapsPrefix + name + "/" }
func mapName(name string, version uint64) string {
	return fmt.Sprintf("%s%016x", mapsOf(name), version)
}

// mapVersion is the name of a collection and the version of its map, of an object; ok is false for others.
func mapVersion(object string) (name string, version uint64, ok bool) {
	dir, last := path.Split(strings.TrimPrefix(object, mapsPrefix))
	name = strings.TrimSuffix(dir, "/")
	version, err := strconv.ParseUint(last, 16, 64)
	return name, version, err == nil && collection.CheckName(name) == nil && mapName(name, version) == object
}

func newToken() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// encode gives a line of JSON and a line with its checksum: with one bit changed a name is not known any
// more, or a number is another one, and either would take effect in silence.
func (m *Map) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	return fmt.Appendf(text, "\n%08x\n", checksum(text)), err
}

// decodeMap reads an object that is to be a version of a map. The error is [storage.ErrCorrupt] or [ErrNewer].
func decodeMap(name string, version uint64, object []byte) (*Map, error) {
	fault := func(err error, format string, a ...any) (*Map, error) {
		return nil, fmt.Errorf("%s: %w: %s", mapName(name, version), err, fmt.Sprintf(format, a...))
	}
	text, sum, found := bytes.Cut(object, []byte("\n"))
	if !found || string(sum) != fmt.Sprintf("%08x\n", checksum(text)) {
		return fault(storage.ErrCorrupt, "its checksum is not that of its bytes")
	}
	var any struct{ Format int }
	if err := json.Unmarshal(text, &any); err != nil {
		return fault(storage.ErrCorrupt, "%v", err)
	}
	if any.Format != mapFormat {
		return fault(ErrNewer, "its format is %d, %d is known here", any.Format, mapFormat)
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
	if err := m.check(); err != nil {
		return fault(storage.ErrCorrupt, "%v", err)
	}
	return m, nil
}

// check finds what no map may say.
func (m *Map) check() error {
	if err := collection.CheckName(m.Name); err != nil {
		return err
	}
	ids := []string{m.ID}
	for _, g := range m.Gone {
		ids = append(ids, g.ID)
	}
	for _, id := range ids { // objects below data/ID/ are deleted
		suffix, own := strings.CutPrefix(id, m.Name+".")
		if b, err := hex.DecodeString(suffix); !own || err != nil || len(b) != 8 {
			return fmt.Errorf("%q is no identity of %q", id, m.Name)
		}
	}
	if m.Version == 0 || m.Shards < 1 || m.Shards > MaxShards || m.Replicas < 1 || m.Replicas > MaxReplicas {
		return fmt.Errorf("version %d, %d shards, %d replicas", m.Version, m.Shards, m.Replicas)
	}
	if _, err := m.Config.Completed(); err != nil {
		return err
	}
	used := map[uint64]bool{}
	use := func(number uint64) error {
		if number == 0 || number > m.Last || used[number] {
			return fmt.Errorf("generation %d is 0, above the last one, %d, or is there twice", number, m.Last)
		}
		used[number] = true
		return nil
	}
	for _, g := range []*replica.Generation{m.Current, m.Next} {
		if g == nil {
			continue
		}
		if err := use(g.Number); err != nil {
			return err
		}
		if g.Dim < 0 || g.Codec.Name != "" && g.Codec.Check() != nil {
			return fmt.Errorf("generation %d has the dimension %d and the codec %q", g.Number, g.Dim, g.Codec.Name)
		}
	}
	for _, r := range []*Reserved{m.Training, m.Building} {
		if r != nil {
			if err := use(r.Generation); err != nil {
				return err
			}
		}
	}
	for _, r := range m.Retired {
		if err := use(r.Generation); err != nil {
			return err
		}
	}
	return nil
}

// clone is a copy that may be changed.
func (m *Map) clone() *Map {
	text, err := json.Marshal(m)
	c := &Map{}
	if err = errors.Join(err, json.Unmarshal(text, c)); err != nil {
		panic(err) // it was read, or made, of the same fields
	}
	return c
}

// generation is the one of a number, Current or Next; nil: neither.
func (m *Map) generation(number uint64) *replica.Generation {
	for _, g := range []*replica.Generation{m.Current, m.Next} {
		if g != nil && g.Number == number {
			return g
		}
	}
	return nil
}

// retire lets a generation go: its objects are deleted when the grace is over.
func (m *Map) retire(number uint64) { m.Retired = append(m.Retired, Retired{Generation: number}) }

// reserve gives out the next number of a generation, in the place of a reservation before.
func (m *Map) reserve(r **Reserved, by string) {
	if *r != nil {
		m.retire((*r).Generation)
	}
	m.Last++
	*r = &Reserved{Generation: m.Last, By: by}
}

// promote makes a generation that is built the one that is searched. Another that is being built for it
// is of no use any more.
func (m *Map) promote(g *replica.Generation) {
	if m.Current != nil {
		m.retire(m.Current.Number)
	}
	if m.Next != nil && m.Next.Number != g.Number {
		m.retire(m.Next.Number)
	}
	if m.Training != nil {
		m.retire(m.Training.Generation)
	}
	m.Current, m.Next, m.For, m.Training, m.Trouble, m.Failed = g, nil, "", nil, nil, nil
}

// giveUp lets Next go.
func (m *Map) giveUp(reason string) {
	m.retire(m.Next.Number)
	m.Failed = &Failed{m.Next.Trained, m.For, reason}
	m.Next, m.For, m.Trouble = nil, "", nil
}

// shardOf is the shard of a document by its id; passages are in that of their document.
func (m *Map) shardOf(id string) int { return index.Place(whole(id), m.Shards) }

// whole is the id of the document that a passage of an id belongs to. An id of that form that is none of a
// passage has the same place, since it cannot be told from one where it is looked up.
func whole(id string) string {
	for {
		of, number := vectors.SplitPassageID(id)
		if number < 0 || of == "" {
			return id
		}
		id = of
	}
}

// most is the share of a shard of max_documents; nil: all.
func (m *Map) most(shard int) *uint64 {
	if m.Config.MaxDocuments == nil {
		return nil
	}
	n, s, of := *m.Config.MaxDocuments, uint64(shard), uint64(m.Shards)
	part := func(i uint64) uint64 { return n/of*i + n%of*i/of }
	share := part(s+1) - part(s)
	return &share
}

// shard says which shard a replica of a generation is of.
func (m *Map) shard(number int, g *replica.Generation) replica.Shard {
	cfg := m.Config
	cfg.MaxDocuments = m.most(number)
	return replica.Shard{Collection: m.ID, Number: number, Generation: *g, Config: cfg}
}

// readMap reads one version. The error is [objects.ErrNotFound], that of decodeMap, or that of the store.
func readMap(ctx context.Context, s objects.Store, name string, version uint64) (*Map, error) {
	object, _, err := objects.Read(ctx, s, mapName(name, version), maxMap)
	if errors.Is(err, objects.ErrDamaged) {
		err = fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
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
		listed, err := s.List(ctx, mapsOf(name), "", 0)
		if err != nil {
			return nil, err
		}
		newest := uint64(0)
		for _, e := range listed {
			if of, version, ok := mapVersion(e.Name); ok && of == name {
				newest = max(newest, version)
			}
		}
		if newest == 0 {
			return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, name)
		}
		m, err := readMap(ctx, s, name, newest)
		if !errors.Is(err, objects.ErrNotFound) { // else it was superseded, and deleted, since
			return m, err
		}
	}
}

// livingMap is newestMap of a collection that was not removed, else [collection.ErrUnknown].
func livingMap(ctx context.Context, s objects.Store, name string) (*Map, error) {
	m, err := newestMap(ctx, s, name)
	if err == nil && m.Removed {
		return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, name)
	}
	return m, err
}

// putTries is how often a map is put, and looked for, while the store does not answer.
const putTries = 6

// putMap puts a map as its version. The error is errTaken if another process has put that, or if the version
// was there before, and is so old that it was deleted; after others it is not known whether it is there.
func putMap(ctx context.Context, s objects.Store, m *Map) error {
	m.Format, m.Token = mapFormat, newToken()
	if err := m.check(); err != nil {
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
	again := func(do func() error) (err error) {
		for try := range putTries {
			if try > 0 {
				select {
				case <-ctx.Done():
					return errors.Join(err, ctx.Err())
				case <-time.After(10 * time.Millisecond << try):
				}
			}
			if err = do(); err == nil || errors.Is(err, errTaken) {
				return err
			}
		}
		return err
	}
	err = again(func() error {
		_, err := s.Put(ctx, mapName(m.Name, m.Version), bytes.NewReader(body), int64(len(body)))
		if err == nil {
			return nil
		}
		there, rerr := readMap(context.WithoutCancel(ctx), s, m.Name, m.Version)
		switch {
		case rerr == nil && there.Token == m.Token: // the answer was lost
			return nil
		case rerr == nil, errors.Is(rerr, ErrNewer), errors.Is(rerr, storage.ErrCorrupt):
			return errTaken
		}
		return err
	})
	if err != nil {
		return err
	}
	// The version may have been there long ago: a process that slept meanwhile does not know of the
	// versions after it. Old ones are deleted in their order, so that the one before would be gone too.
	return again(func() error {
		first, after := max(m.Version, 2)-1, ""
		if first > 1 {
			after = mapName(m.Name, first-1)
		}
		listed, err := s.List(ctx, mapsOf(m.Name), after, 0)
		if err != nil {
			return err
		}
		n := len(listed)
		if n > 0 && listed[0].Name == mapName(m.Name, first) && listed[n-1].Name == mapName(m.Name, first+uint64(n)-1) {
			return nil
		}
		return errTaken
	})
}

// updateMap makes the next version of the map of a collection that is there: change gets a copy of the newest
// one, and may be asked again. Its error ends it; errSame means that the map stays.
func updateMap(ctx context.Context, s objects.Store, name string, change func(*Map) error) (*Map, error) {
	return updateAny(ctx, s, name, func(m *Map) error {
		if m.Removed {
			return fmt.Errorf("%w: %q", collection.ErrUnknown, name)
		}
		return change(m)
	})
}

// updateAny is updateMap of a collection that may have been removed.
func updateAny(ctx context.Context, s objects.Store, name string, change func(*Map) error) (*Map, error) {
	for {
		m, err := newestMap(ctx, s, name)
		if err != nil {
			return nil, err
		}
		next := m.clone()
		if err := change(next); errors.Is(err, errSame) {
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
