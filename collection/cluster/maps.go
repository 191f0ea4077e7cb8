package cluster

import (
	"bytes"
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
	"github.com/plaid-ir/plaid/vectors"
)

// Map describes a collection. It is an object of the store, maps/NAME/VERSION. A change puts the next version, if that
// does not exist yet (I7: maps).
type Map struct {
	Format  int    `json:"format"` // 1
	Name    string `json:"name"`
	ID      string `json:"id"` // NAME.RANDOM: a later collection with the same name has another id
	Version uint64 `json:"version"`
	Token   string `json:"token"` // distinguishes this version from one with the same number of another writer
	Removed bool   `json:"removed,omitempty"`
	// Config is the configuration of the collection; MaxDocuments may change.
	Config   collection.Config `json:"config"`
	Shards   int               `json:"shards"`
	Replicas int               `json:"replicas"` // wanted for each shard
	// Current is the generation that is searched. It is nil if the collection has no documents yet. Next is being
	// encoded and will replace it. For is the token of the call that has requested Next. "" means that growth has.
	Current *replica.Generation `json:"current,omitempty"`
	Next    *replica.Generation `json:"next,omitempty"`
	For     string              `json:"next_for,omitempty"`
	Last    uint64              `json:"last_generation"` // highest number that was given to a generation
	// Training and Building are generations that have objects in the store before they are in the map: one that the
	// coordinator is training, and one of a bulk build. If a reservation was replaced, its owner must give up.
	Training *Reserved `json:"training,omitempty"`
	Building *Reserved `json:"building,omitempty"`
	// Wanted is the token of a call that has requested a training. "" means none.
	Wanted string `json:"wanted,omitempty"`
	// Failed says why the last training was given up. It is nil if it was not.
	Failed *Failed `json:"failed,omitempty"`
	// Retired lists generations and collections that are not used any more. Their objects are deleted after the grace.
	Retired []Retired `json:"retired,omitempty"`

	readErr error // why this program cannot read the map, and so changes nothing, or nil
}

// Reserved is a reserved generation number, and the process that has it.
type Reserved struct {
	Generation uint64    `json:"generation"`
	By         string    `json:"by"`
	Since      time.Time `json:"since,omitzero"` // when the collector first saw it, by the clock of the store
}

// reserves reports whether this is the reservation of a generation. It is false for a nil Reserved.
func (r *Reserved) reserves(generation uint64) bool { return r != nil && r.Generation == generation }

// Failed is a training that was given up.
type Failed struct {
	Tokens uint64   `json:"tokens"`        // of the collection at that time
	For    string   `json:"for,omitempty"` // token of the caller who had requested it
	Cause  *failure `json:"cause"`
}

// Retired is a generation that is not used any more, or a removed collection.
type Retired struct {
	ID         string `json:"id"`
	Generation uint64 `json:"generation,omitempty"` // 0 means the whole collection
	// Since is when the collector first saw the entry, by the clock of the store, zero before that.
	Since time.Time `json:"since,omitzero"`
	// Shards is how many logs a removed collection has, as long as they are not sealed. 0 means that they are.
	Shards int `json:"shards,omitempty"`
}

const (
	mapsPrefix = "maps/"
	mapFormat  = 1
	maxMap     = 4 << 20 // bytes of a map
	// MaxShards limits the shards of a collection.
	MaxShards = 9999
	// MaxReplicas limits the replicas of a shard.
	MaxReplicas = 32
)

var (
	// ErrNewer means that a newer program has written something that this one cannot read.
	ErrNewer = errors.New("it was written by a newer version of plaid")
	// ErrConflict means that a change is not possible because another process has changed the collection meanwhile.
	ErrConflict = errors.New("the collection was changed by another process meanwhile")

	errUnchanged = errors.New("nothing is to be changed") // a change of a map leaves it as it is
	errTaken     = errors.New("another process has put this version of the map")

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// checksum returns the CRC-32C of a text.
func checksum(text []byte) uint32 { return crc32.Checksum(text, castagnoli) }

// unknownError returns the error of a collection, by name or id, that does not exist.
func unknownError(nameOrID string) error {
	return fmt.Errorf("%w: %q", collection.ErrUnknown, nameOrID)
}

// unreadable reports whether an error says that a map exists, but that this program cannot read it.
func unreadable(err error) bool { return errors.Is(err, collection.ErrDamaged) }

// versionsPrefix returns the prefix of the objects with the versions of a map.
func versionsPrefix(name string) string { return mapsPrefix + name + "/" }

// versionObject returns the name of the object of a version of a map.
func versionObject(name string, version uint64) string {
	return fmt.Sprintf("%s%016x", versionsPrefix(name), version)
}

// parseVersionObject parses the name of an object. ok is false if it is not a version of a map.
func parseVersionObject(object string) (name string, version uint64, ok bool) {
	dir, last := path.Split(strings.TrimPrefix(object, mapsPrefix))
	name = strings.TrimSuffix(dir, "/")
	version, err := strconv.ParseUint(last, 16, 64)
	return name, version, err == nil && collection.CheckName(name) == nil && versionObject(name, version) == object
}

// newToken returns a random token of 16 hexadecimal digits.
func newToken() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// encode returns a line of JSON and a line with its checksum: without it, a flipped bit in a name or a number would
// take effect unnoticed.
func (m *Map) encode() ([]byte, error) {
	text, err := json.Marshal(m)
	return fmt.Appendf(text, "\n%08x\n", checksum(text)), err
}

// decodeMap decodes a version of a map. The error wraps [collection.ErrDamaged], and [storage.ErrCorrupt] or
// [ErrNewer].
func decodeMap(name string, version uint64, object []byte) (*Map, error) {
	fault := func(err error, format string, a ...any) (*Map, error) {
		detail := fmt.Sprintf(format, a...)
		return nil, fmt.Errorf("%w: %s: %w: %s", collection.ErrDamaged, versionObject(name, version), err, detail)
	}
	text, sum, found := bytes.Cut(object, []byte("\n"))
	if !found || string(sum) != fmt.Sprintf("%08x\n", checksum(text)) {
		return fault(storage.ErrCorrupt, "its checksum does not match its bytes")
	}
	var head struct{ Format int }
	if err := json.Unmarshal(text, &head); err != nil {
		return fault(storage.ErrCorrupt, "%v", err)
	}
	if head.Format != mapFormat {
		return fault(ErrNewer, "its format is %d, and this program reads format %d", head.Format, mapFormat)
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

// validate returns an error for a map that would be unsafe to act on.
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
		return errors.New("a training has failed without a reason")
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
	for _, id := range ids { // the objects below data/ID/ may be deleted, so an id must belong to this name
		suffix, hasName := strings.CutPrefix(id, m.Name+".")
		if b, err := hex.DecodeString(suffix); !hasName || err != nil || len(b) != 8 {
			return fmt.Errorf("%q is not an id of %q", id, m.Name)
		}
	}
	// Numbers are unique and at most Last: otherwise a generation in use could be deleted as a retired one.
	slices.Sort(numbers)
	for i, n := range numbers {
		if n == 0 || n > m.Last || i > 0 && n == numbers[i-1] {
			return fmt.Errorf("generation number %d is 0, higher than the last number %d, or used twice", n, m.Last)
		}
	}
	return nil
}

// copyMap returns a copy that may be changed.
func (m *Map) copyMap() *Map {
	text, err := json.Marshal(m)
	c := &Map{}
	if err = errors.Join(err, json.Unmarshal(text, c)); err != nil {
		panic(err) // impossible: the fields were decoded from JSON or can be encoded
	}
	return c
}

// generations returns Current and Next, as far as they exist.
func (m *Map) generations() []*replica.Generation {
	existing := []*replica.Generation{m.Current, m.Next}
	return slices.DeleteFunc(existing, func(g *replica.Generation) bool { return g == nil })
}

// generation returns Current or Next by its number, nil if neither has the number.
func (m *Map) generation(number uint64) *replica.Generation {
	for _, g := range m.generations() {
		if g.Number == number {
			return g
		}
	}
	return nil
}

// isNext returns a condition: whether the generation with a number is Next.
func isNext(number uint64) func(*Map) bool {
	return func(m *Map) bool { return m.Next != nil && m.Next.Number == number }
}

// retire adds a generation of the collection to Retired.
func (m *Map) retire(number uint64) {
	m.Retired = append(m.Retired, Retired{ID: m.ID, Generation: number})
}

// remove turns the map into that of a removed collection, whose objects will be deleted.
func (m *Map) remove() {
	retired := slices.DeleteFunc(m.Retired, func(r Retired) bool { return r.Generation > 0 })
	entry := Retired{ID: m.ID}
	if m.Current != nil { // otherwise there are no logs: no node could take changes
		entry.Shards = m.Shards
	}
	*m = Map{
		Name: m.Name, ID: m.ID, Version: m.Version, Removed: true, Config: m.Config, Shards: m.Shards,
		Replicas: m.Replicas, Last: m.Last, Retired: append(retired, entry),
	}
}

// release gives up a reservation.
func (m *Map) release(r **Reserved) {
	if *r != nil {
		m.retire((*r).Generation)
		*r = nil
	}
}

// reserve reserves the next generation number, and gives up the previous reservation.
func (m *Map) reserve(r **Reserved, by string) {
	m.release(r)
	m.Last++
	*r = &Reserved{Generation: m.Last, By: by}
}

// promote makes a complete generation the one that is searched. All other generations of the collection are retired,
// and a training is given up.
func (m *Map) promote(g *replica.Generation) {
	for _, other := range m.generations() {
		if other.Number != g.Number {
			m.retire(other.Number)
		}
	}
	m.release(&m.Training)
	m.Current, m.Next, m.For, m.Failed = g, nil, "", nil
}

// giveUpNext gives up Next, for a reason.
func (m *Map) giveUpNext(why error) {
	m.retire(m.Next.Number)
	m.Failed = &Failed{m.Next.Trained, m.For, newFailure(why)}
	m.Next, m.For = nil, ""
}

// shardOf returns the shard of a document. Passages are in the shard of their document.
func (m *Map) shardOf(id string) int { return index.HashShard(documentIDOf(id), m.Shards) }

// documentIDOf returns the id of the document that a passage with an id belongs to, or the id itself if it has not the
// form of a passage's id. Other documents whose ids have this form get the same shard, since a lookup by id cannot tell
// them apart.
func documentIDOf(id string) string {
	for {
		document, number := vectors.SplitPassageID(id)
		if number < 0 || document == "" {
			return id
		}
		id = document // which may have the form of a passage's id too
	}
}

// maxDocumentsOf returns a shard's share of the limit of documents, nil without a limit.
func (m *Map) maxDocumentsOf(shard int) *uint64 {
	if m.Config.MaxDocuments == nil {
		return nil
	}
	n, s, shards := *m.Config.MaxDocuments, uint64(shard), uint64(m.Shards)
	// before(i) is the share of the shards before i together: n*i/shards, without overflow.
	before := func(i uint64) uint64 { return n/shards*i + n%shards*i/shards }
	share := before(s+1) - before(s)
	return &share
}

// replicaShard describes a shard of a generation for package replica.
func (m *Map) replicaShard(number int, g *replica.Generation) replica.Shard {
	cfg := m.Config
	cfg.MaxDocuments = m.maxDocumentsOf(number)
	return replica.Shard{Collection: m.ID, Number: number, Generation: *g, Config: cfg}
}
