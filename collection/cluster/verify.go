package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage/objects"
)

// VerifyOptions select collections.
type VerifyOptions struct {
	Name string // of a collection. "" means all
	Dir  string // for temporary files. "" means the default folder
}

// VerifyReport describes the objects of a store.
type VerifyReport struct {
	Collections int   `json:"collections"` // that were verified
	Objects     int   `json:"objects"`     // that were read, or that are waiting to be deleted
	Bytes       int64 `json:"bytes"`       // of these objects
	// Faults are sentences about damaged or missing objects.
	Faults []string `json:"faults"`
	// Unclaimed are objects that no map names, such as those of an interrupted training. They are never deleted.
	Unclaimed []string `json:"unclaimed"`
}

// Verify reads and checks every byte that a store has of its collections: maps, logs, codecs and checkpoints. Nodes
// need not run. If they run, objects that are deleted meanwhile are ignored.
func Verify(ctx context.Context, s objects.Store, o VerifyOptions) (r *VerifyReport, err error) {
	dir, err := os.MkdirTemp(o.Dir, "plaid-verify-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	v := &verifier{store: s, dir: dir, report: &VerifyReport{Faults: []string{}, Unclaimed: []string{}}}
	claimed := map[string]bool{} // ids of collections that a map claims
	claim := func(m *Map) {
		claimed[m.ID] = claimed[m.ID] || !m.Removed
		for _, r := range m.Retired {
			claimed[r.ID] = true
		}
	}
	names := map[string]bool{}    // whether the map of a name can be read
	lookedUp := map[string]bool{} // ids that no map had claimed, and that were looked up again
	// List the maps.
	err = eachObject(ctx, s, mapsPrefix, func(e objects.Entry) error {
		if name, _, ok := parseVersionObject(e.Name); !ok {
			v.addUnclaimed(e)
		} else if o.Name == "" || o.Name == name {
			names[name] = true
			v.countObject(e.Size)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if o.Name != "" && !names[o.Name] {
		return nil, unknownError(o.Name)
	}
	// Verify the collections.
	for name := range names {
		m, err := newestMap(ctx, s, name)
		if unreadable(err) {
			v.addFault("%v", err)
			names[name] = false
			continue
		}
		if err != nil {
			return nil, err
		}
		if claim(m); m.Removed {
			continue
		}
		v.report.Collections++
		if err := v.verifyUnchanged(ctx, m); err != nil {
			return nil, err
		}
	}
	// Find objects that no map claims.
	if o.Name == "" {
		err = eachObject(ctx, s, "data/", func(e objects.Entry) error {
			id, _, _ := strings.Cut(strings.TrimPrefix(e.Name, "data/"), "/")
			if readable, known := names[nameFromID(id)]; claimed[id] || known && !readable {
				return nil
			}
			if !lookedUp[id] { // the collection may be new
				lookedUp[id] = true
				m, err := newestMap(ctx, s, nameFromID(id))
				switch {
				case err == nil:
					claim(m)
				case unreadable(err):
					claimed[id] = true // an unreadable map may claim it
				case !wrapsAny(err, collection.ErrUnknown, collection.ErrName):
					return err
				}
			}
			if !claimed[id] {
				v.addUnclaimed(e)
			}
			return nil
		})
	}
	slices.Sort(v.report.Faults)
	return v.report, err
}

// verifier adds its findings to a report.
type verifier struct {
	store  objects.Store
	dir    string
	report *VerifyReport
}

// addFault adds a fault.
func (v *verifier) addFault(format string, a ...any) {
	v.report.Faults = append(v.report.Faults, fmt.Sprintf(format, a...))
}

// noteFault adds a fault if the error says that an object is damaged or missing. It returns other errors, such as those
// of a store that does not answer.
func (v *verifier) noteFault(ctx context.Context, object string, err error) error {
	faults := []error{
		objects.ErrNotFound, objects.ErrDamaged, journal.ErrFork, journal.ErrBehind, errFile,
	}
	wraps := func(fault error) bool { return errors.Is(err, fault) }
	if err == nil || ctx.Err() != nil || !slices.ContainsFunc(faults, wraps) {
		return errors.Join(err, ctx.Err())
	}
	v.addFault("%s: %v", object, err)
	return nil
}

// addUnclaimed adds an object that no map names.
func (v *verifier) addUnclaimed(e objects.Entry) {
	v.report.Unclaimed = append(v.report.Unclaimed, e.Name)
}

// countObject counts an object of some bytes.
func (v *verifier) countObject(bytes int64) {
	v.report.Objects++
	v.report.Bytes += bytes
}

// verifyUnchanged verifies a collection. If it finds a fault and the map has changed meanwhile, it starts again, since
// the fault may not be real.
func (v *verifier) verifyUnchanged(ctx context.Context, m *Map) error {
	for {
		before := *v.report
		if err := v.verifyCollection(ctx, m); err != nil {
			return err
		}
		if len(v.report.Faults) == len(before.Faults) && len(v.report.Unclaimed) == len(before.Unclaimed) {
			return nil
		}
		now, err := newestMap(ctx, v.store, m.Name)
		if err != nil || now.Version == m.Version {
			return nil // the findings are real
		}
		*v.report = before
		if m = now; m.Removed {
			return nil
		}
	}
}

// verifyCollection verifies the objects of a collection.
func (v *verifier) verifyCollection(ctx context.Context, m *Map) error {
	waiting := map[uint64]bool{} // generations that are not used yet or any more: their objects are not read
	for _, r := range m.Retired {
		waiting[r.Generation] = true
	}
	for _, r := range []*Reserved{m.Training, m.Building} {
		if r != nil {
			waiting[r.Generation] = true
		}
	}
	// List the objects, and find out what each belongs to.
	files := make([][]journal.Checkpoint, m.Shards)
	err := eachObject(ctx, v.store, dataPrefix(m.ID), func(e objects.Entry) error {
		var generation uint64
		shard, p, ok := parseCheckpoint(m, e)
		object := strings.TrimPrefix(e.Name, dataPrefix(m.ID))
		if ok {
			generation = p.Generation
		} else if n, _ := fmt.Sscanf(object, "codec/%08d", &generation); n == 1 &&
			codecObject(m.ID, generation) != e.Name { // Sscanf accepts other forms of the number
			generation = 0
		}
		logShard := 0
		n, _ := fmt.Sscanf(object, "log/%04d/", &logShard)
		inUse := generation > 0 && m.generation(generation) != nil
		switch {
		case inUse && ok:
			files[shard] = append(files[shard], p) // read below
		case inUse: // the codec, read below
		case n == 1 && logShard < m.Shards, generation > 0 && waiting[generation]:
			v.countObject(e.Size)
		default:
			v.addUnclaimed(e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Read the codec, the checkpoints and the logs.
	if m.Current != nil && m.Current.Codec.Name != "" {
		ref := m.Current.Codec
		err := objects.FetchRef(ctx, v.store, ref, filepath.Join(v.dir, "codec.plaid"))
		if err == nil {
			v.countObject(ref.Size)
		}
		if err := v.noteFault(ctx, ref.Name, err); err != nil {
			return err
		}
	}
	for shard := range m.Shards {
		if err := v.verifyShard(ctx, m, shard, files[shard]); err != nil {
			return err
		}
	}
	return nil
}

// errFile means that an index file was read completely, and is damaged.
var errFile = errors.New("the index file is damaged")

// verifyShard reads the checkpoints of a shard, and its log after the oldest checkpoint that the log continues.
func (v *verifier) verifyShard(ctx context.Context, m *Map, shard int, files []journal.Checkpoint) error {
	var starts []journal.Position
	// covered says that a checkpoint, or the whole log, has the documents of the generation that is searched.
	covered := m.Current == nil || m.Current.Begun
	if covered {
		starts = append(starts, journal.Position{})
	}
	for _, p := range files {
		starts = append(starts, p.Position)
		covered = covered || p.Generation == m.Current.Number
		// A checkpoint that is not found was deleted since.
		if err := v.verifyCheckpoint(ctx, p); !errors.Is(err, objects.ErrNotFound) {
			if err := v.noteFault(ctx, p.Name, err); err != nil {
				return err
			}
		}
	}
	if !covered {
		v.addFault("shard %d of %q has no checkpoint of generation %d", shard, m.Name, m.Current.Number)
	}
	slices.SortFunc(starts, func(a, b journal.Position) int { return cmp.Compare(a.Number, b.Number) })
	log := journal.New(v.store, m.ID, shard, journal.Options{})
	var err error
	for _, from := range starts {
		_, err = log.Read(ctx, from, 0, func(journal.Entry) error { return nil })
		if !errors.Is(err, journal.ErrBehind) {
			break
		}
	}
	return v.noteFault(ctx, fmt.Sprintf("the log of shard %d of %q", shard, m.Name), err)
}

// verifyCheckpoint fetches a checkpoint, and reads and checks every byte of it.
func (v *verifier) verifyCheckpoint(ctx context.Context, p journal.Checkpoint) (err error) {
	path := filepath.Join(v.dir, "checkpoint.plaid")
	if err := objects.Fetch(ctx, v.store, p.Name, p.Size, path); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", errFile, err)
		}
		err = errors.Join(err, os.Remove(path))
	}()
	v.countObject(p.Size)
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	applied, err := snap.Applied()
	if err == nil && (applied.Sequence != p.Number || applied.Mark != [16]byte(p.Hash)) {
		err = fmt.Errorf("it has the entries up to %d (%x), not %d (%x)",
			applied.Sequence, applied.Mark, p.Number, p.Hash)
	}
	return errors.Join(err, snap.Verify(ctx))
}
