package command

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
)

// indexes names the index files of a command: INDEX, which may be a folder, and those
// of --index, which are used as one with it.
type indexes struct{ more []string }

// severalHelp is what the help says about several indexes.
const severalHelp = `INDEX may be a folder: all its files *.plaid are used as one index, and so are the
files and folders that --index names. They must have the same codec (docs/scale.md).`

func (x *indexes) register(f *pflag.FlagSet) {
	f.StringArrayVar(&x.more, "index", nil, "another index `FILE`, or a folder, that is used as one with INDEX; may be given several times")
}

// paths are the files, in order.
func (x *indexes) paths(first string) ([]string, error) {
	var all []string
	for _, path := range slices.Concat([]string{first}, x.more) {
		paths, err := index.SetPaths(path)
		if err != nil {
			return nil, err
		}
		all = append(all, paths...)
	}
	return all, nil
}

// searched is what a command searches: one index, or several as one.
type searched struct {
	snap  *index.Snapshot    // the first, or the only one: its codec and its model are those of all
	parts *index.SetSnapshot // nil: there is one
}

// searcher answers queries and tells how.
type searcher interface {
	quality.Traced
	Explain(ctx context.Context, q search.Query, id string, o search.Options) (*search.Explanation, error)
}

// part is the snapshot that a number of a hit or an explanation stands for.
func (x *searched) part(i int) *index.Snapshot {
	if x.parts == nil {
		return x.snap
	}
	return x.parts.Parts()[i]
}

// snapshots are those of all parts.
func (x *searched) snapshots() []*index.Snapshot {
	if x.parts == nil {
		return []*index.Snapshot{x.snap}
	}
	return x.parts.Parts()
}

// find is the snapshot that has a live document of an id; nil: none has.
func (x *searched) find(id string) (*index.Snapshot, error) {
	if x.parts == nil {
		_, ok, err := x.snap.Ordinal(id)
		if !ok {
			return nil, err
		}
		return x.snap, nil
	}
	part, _, err := x.parts.Find(id)
	if part < 0 || err != nil {
		return nil, err
	}
	return x.part(part), nil
}

// openSearched opens what is searched for reading.
func (op *opener) openSearched(ctx context.Context, names *indexes, path string, use func(*searched) error) error {
	paths, err := names.paths(path)
	if err != nil {
		return err
	}
	if len(paths) == 1 {
		return op.openSnapshot(ctx, paths[0], func(_ *index.Index, snap *index.Snapshot) error { return use(&searched{snap: snap}) })
	}
	return op.openSet(ctx, paths, false, func(set *index.Set) (err error) {
		snap, err := set.Snapshot()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, snap.Close()) }()
		x := &searched{snap: snap.Parts()[0], parts: snap}
		for _, p := range snap.Parts() { // one that says which model it is of
			if p.Header().Model != nil {
				x.snap = p
				break
			}
		}
		return use(x)
	})
}

// openSet opens several indexes as one.
func (op *opener) openSet(ctx context.Context, paths []string, write bool, use func(*index.Set) error) (err error) {
	var set *index.Set
	err = op.locked(ctx, func(wait time.Duration) (err error) {
		set, err = index.OpenSet(ctx, paths, &index.Options{Write: write, LockTimeout: wait, Logger: op.logger()})
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	return use(set)
}

// withSearcher makes a searcher for what is searched and hands it to use.
func (op *opener) withSearcher(ctx context.Context, x *searched, one search.EngineOptions, d *flags.Device, use func(searcher) error) error {
	if x.parts == nil {
		return op.withEngine(ctx, x.snap, one, d, func(e *search.Engine) error { return use(e) })
	}
	o := &search.MultiOptions{Threads: one.Threads, Logger: op.logger()}
	var names []string
	if d != nil {
		names = strings.Split(d.Name, ",")
	}
	return op.openDevices(ctx, names, func(devices []kernels.Device) (err error) {
		o.Devices = devices
		m, err := search.NewMultiAt(ctx, x.parts, o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.Close()) }()
		return use(m)
	})
}

// openDevices opens each device and hands all to use; none for the processor.
func (op *opener) openDevices(ctx context.Context, names []string, use func([]kernels.Device) error) error {
	if len(names) == 0 {
		return use(nil)
	}
	return op.openDevice(ctx, &flags.Device{Name: names[0]}, func(first kernels.Device) error {
		if len(names) == 1 && first == nil {
			return use(nil)
		}
		return op.openDevices(ctx, names[1:], func(others []kernels.Device) error {
			if first == nil || len(others) < len(names)-1 {
				return flags.Usagef("--device %s: the processor is not one of several devices", strings.Join(names, ","))
			}
			return use(append([]kernels.Device{first}, others...))
		})
	})
}
