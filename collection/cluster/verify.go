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
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage/objects"
)

// VerifyOptions say what is read.
type VerifyOptions struct {
	Name string // of a collection; "": all
	Dir  string // for files; "": a temporary folder
	// Progress, where set, is told of each object that was read.
	Progress func(object string)
}

// VerifyReport says what is in a store.
type VerifyReport struct {
	Collections int   `json:"collections"` // that were looked at
	Objects     int   `json:"objects"`     // that were read, or are waiting to be deleted
	Bytes       int64 `json:"bytes"`       // of the objects
	// Faults say in words what is damaged or missing.
	Faults []string `json:"faults"`
	// Unclaimed are objects that no map speaks of, such as of a training that was interrupted. They are never
	// deleted by a program.
	Unclaimed []string `json:"unclaimed"`
}

// Verify reads every byte of what a store has of its collections: maps, logs, codecs and checkpoints. Nodes need
// not run; if they do, objects that are deleted meanwhile are passed over.
func Verify(ctx context.Context, s objects.Store, o VerifyOptions) (r *VerifyReport, err error) {
	dir, err := os.MkdirTemp(o.Dir, "plaid-verify-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	v := &verifier{store: s, o: o, dir: dir, report: &VerifyReport{Faults: []string{}, Unclaimed: []string{}}}
	versions := map[string]bool{}
	err = eachObject(ctx, s, mapsPrefix, func(e objects.Entry) error {
		name, _, ok := mapVersion(e.Name)
		if !ok {
			v.unclaimed(e)
		} else if o.Name == "" || o.Name == name {
			versions[name] = true
			v.read(e)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if o.Name != "" && !versions[o.Name] {
		return nil, fmt.Errorf("%w: %q", collection.ErrUnknown, o.Name)
	}
	claimed, unknown := map[string]bool{}, map[string]bool{}
	for name := range versions {
		m, err := newestMap(ctx, s, name)
		if unreadable(err) {
			v.fault("%v", err)
			unknown[name] = true
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, g := range m.Gone {
			claimed[g.ID] = true
		}
		if m.Removed {
			continue
		}
		claimed[m.ID] = true
		v.report.Collections++
		if err := v.collection(ctx, m); err != nil {
			return nil, err
		}
	}
	if o.Name == "" {
		err = eachObject(ctx, s, "data/", func(e objects.Entry) error {
			id, _, _ := strings.Cut(strings.TrimPrefix(e.Name, "data/"), "/")
			if !claimed[id] && !unknown[nameOf(id)] {
				v.unclaimed(e)
			}
			return nil
		})
	}
	slices.Sort(v.report.Faults)
	return v.report, err
}

type verifier struct {
	store  objects.Store
	o      VerifyOptions
	dir    string
	report *VerifyReport
}

func (v *verifier) fault(format string, a ...any) {
	v.report.Faults = append(v.report.Faults, fmt.Sprintf(format, a...))
}

func (v *verifier) unclaimed(e objects.Entry) {
	v.report.Unclaimed = append(v.report.Unclaimed, e.Name)
}

func (v *verifier) read(e objects.Entry) {
	v.report.Objects++
	v.report.Bytes += e.Size
	if v.o.Progress != nil {
		v.o.Progress(e.Name)
	}
}

// collection reads what there is of one.
func (v *verifier) collection(ctx context.Context, m *Map) error {
	used, waiting := map[uint64]bool{}, map[uint64]bool{}
	for _, g := range []*replica.Generation{m.Current, m.Next} {
		if g != nil {
			used[g.Number] = true
		}
	}
	for _, r := range m.Retired {
		waiting[r.Generation] = true
	}
	for _, r := range []*Reserved{m.Training, m.Building} {
		if r != nil {
			waiting[r.Generation] = true
		}
	}
	files := make([][]journal.Checkpoint, m.Shards)
	logs := make([]bool, m.Shards)
	err := eachObject(ctx, v.store, dataOf(m.ID), func(e objects.Entry) error {
		rest := strings.TrimPrefix(e.Name, dataOf(m.ID))
		var generation uint64
		if shard, ok := shardOfFile(m, e.Name); ok {
			if p, ok := journal.ParseCheckpoint(e); ok {
				if generation = p.Generation; used[generation] {
					files[shard] = append(files[shard], p)
					return nil
				}
			}
		} else if n, _ := fmt.Sscanf(rest, "codec/%08d", &generation); n == 1 && codecName(m.ID, generation) == e.Name {
			if used[generation] {
				return nil // read below
			}
		} else if shard := 0; strings.HasPrefix(rest, "log/") {
			if n, err := fmt.Sscanf(rest, "log/%04d/", &shard); n == 1 && err == nil && shard < m.Shards {
				logs[shard] = true
				v.read(e)
				return nil
			}
		}
		if waiting[generation] {
			v.read(e)
		} else {
			v.unclaimed(e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if m.Current != nil && m.Current.Codec.Name != "" {
		if err := v.codec(ctx, m.Current.Codec); err != nil {
			return err
		}
	}
	for shard := range m.Shards {
		if err := v.shard(ctx, m, shard, files[shard]); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) codec(ctx context.Context, ref objects.Ref) error {
	err := objects.FetchRef(ctx, v.store, ref, filepath.Join(v.dir, "codec.plaid"))
	if err == nil || ctx.Err() != nil {
		v.read(objects.Entry{Name: ref.Name, Size: ref.Size})
		return ctx.Err()
	}
	if away(err) {
		return err
	}
	v.fault("%v", err)
	return nil
}

// away reports whether an error of a read says nothing of the object, as where the store does not answer.
func away(err error) bool {
	return !slices.ContainsFunc([]error{objects.ErrNotFound, objects.ErrDamaged, journal.ErrFork, journal.ErrBehind, errFile}, func(is error) bool { return errors.Is(err, is) })
}

// errFile: a file that came as a whole, and is damaged.
var errFile = errors.New("the index file is damaged")

// shard reads the checkpoints of a shard, and its log from the oldest of them on from which it goes on.
func (v *verifier) shard(ctx context.Context, m *Map, shard int, files []journal.Checkpoint) error {
	current := false
	for _, p := range files {
		current = current || m.Current != nil && p.Generation == m.Current.Number
		err := v.checkpoint(ctx, p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, objects.ErrNotFound) {
			continue // deleted since
		}
		if err != nil && away(err) {
			return err
		}
		if err != nil {
			v.fault("%s: %v", p.Name, err)
		}
	}
	if m.Current != nil && !m.Current.Begun && !current {
		v.fault("shard %d of %q has no checkpoint of generation %d", shard, m.Name, m.Current.Number)
	}
	starts := []journal.Position{}
	for _, p := range files {
		starts = append(starts, p.Position)
	}
	slices.SortFunc(starts, func(a, b journal.Position) int { return cmp.Compare(a.Number, b.Number) })
	if m.Current == nil || m.Current.Begun {
		starts = append([]journal.Position{{}}, starts...)
	}
	log := journal.New(v.store, m.ID, shard, journal.Options{})
	var err error
	for _, from := range starts {
		if _, err = log.Read(ctx, from, 0, func(journal.Entry) error { return nil }); !errors.Is(err, journal.ErrBehind) {
			break
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && away(err) {
		return err
	}
	if err != nil {
		v.fault("the log of shard %d of %q: %v", shard, m.Name, err)
	}
	return nil
}

// checkpoint fetches one and reads every byte of it.
func (v *verifier) checkpoint(ctx context.Context, p journal.Checkpoint) (err error) {
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
	v.read(objects.Entry{Name: p.Name, Size: p.Size})
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
	at, err := snap.Applied()
	if err == nil && (at.Sequence != p.Number || at.Mark != [16]byte(p.Hash)) {
		err = fmt.Errorf("it has the entries up to %d (%x), not %d (%x)", at.Sequence, at.Mark, p.Number, p.Hash)
	}
	return errors.Join(err, snap.Verify(ctx))
}
