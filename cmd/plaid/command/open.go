package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// opener opens indexes, and what searches them, as the global flags say.
type opener struct {
	stdio
	lockTimeout time.Duration
	// devices are those that the command has opened, by the names that it was given.
	devices map[string]kernels.Device
}

// whenFree calls open, which opens indexes, with options that do not wait for a lock, and once more
// with --lock-timeout if another process has one.
func whenFree[T any](op *opener, write bool, open func(*index.Options) (T, error)) (T, error) {
	o := index.Options{Write: write, Logger: op.logger()}
	opened, err := open(&o)
	if op.lockTimeout > 0 && errors.Is(err, storage.ErrLocked) {
		op.logger().Info("waiting for the lock", "for", op.lockTimeout)
		o.LockTimeout = op.lockTimeout
		return open(&o)
	}
	return opened, err
}

// oneFile refuses a folder where a file is wanted, before what takes long.
func oneFile(path string) error {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return nil // to open it says what is wrong
	}
	if paths, err := index.ShardPaths(path); err == nil {
		return fmt.Errorf("%s: %w: this takes one file, such as %s", path, files.ErrFolder, paths[0])
	}
	return fmt.Errorf("%s: %w: an index is a file", path, files.ErrFolder)
}

// open opens an index and hands it to use.
func (op *opener) open(ctx context.Context, path string, write bool, use func(*index.Index) error) (err error) {
	if err := oneFile(path); err != nil {
		return err
	}
	begin := op.now()
	ix, err := whenFree(op, write, func(o *index.Options) (*index.Index, error) { return index.Open(ctx, path, o) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	if err := op.logOpened(op.now().Sub(begin), ix); err != nil {
		return err
	}
	return use(ix)
}

// openSnapshot opens an index for reading and hands its content to use.
func (op *opener) openSnapshot(ctx context.Context, path string, use func(*index.Snapshot) error) error {
	return op.open(ctx, path, false, func(ix *index.Index) (err error) {
		snap, err := ix.Snapshot()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, snap.Close()) }()
		return use(snap)
	})
}

// indexes names the index files of a command: INDEX, which may be a folder, and those
// of --shard, which are used as one with it.
type indexes struct{ more []string }

// severalHelp is what the help says about several indexes.
const severalHelp = `INDEX may be a folder: all its files *.plaid are used as one index, and so are the
files and folders that --shard names. Each file is a shard. They must have the same codec (docs/scale.md).`

func (x *indexes) register(f *pflag.FlagSet) {
	f.StringArrayVar(&x.more, "shard", nil, "`FILE` that is another shard, or a folder of them, used as one index with INDEX; may be repeated")
}

// paths are the files, in order.
func (x *indexes) paths(first string) ([]string, error) {
	var all []string
	for _, path := range slices.Concat([]string{first}, x.more) {
		paths, err := index.ShardPaths(path)
		if err != nil {
			return nil, err
		}
		all = append(all, paths...)
	}
	return all, nil
}

// openSet opens an index, or several as one, and hands them to use.
func (op *opener) openSet(ctx context.Context, names *indexes, path string, write bool, use func(*index.Shards) error) (err error) {
	paths, err := names.paths(path)
	if err != nil {
		return err
	}
	begin := op.now()
	set, err := whenFree(op, write, func(o *index.Options) (*index.Shards, error) { return index.OpenShards(ctx, paths, o) })
	if differ, ok := errors.AsType[*index.CodecError](err); ok && len(names.more) == 0 {
		return fmt.Errorf("%s is a folder, and %w: name one of its %d indexes", path, differ, len(paths))
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.Close()) }()
	if err := op.logOpened(op.now().Sub(begin), set.Files()...); err != nil {
		return err
	}
	return use(set)
}

// searched is what a command searches: one index, or several as one.
type searched struct {
	set   *index.ShardsSnapshot
	parts []*index.Snapshot // its files; the number of a hit or an explanation stands for one
	snap  *index.Snapshot   // the one whose codec and model are those of all
}

// several reports whether there is more than one file.
func (x *searched) several() bool { return len(x.parts) > 1 }

// openSearched opens what is searched for reading.
func (op *opener) openSearched(ctx context.Context, names *indexes, path string, use func(*searched) error) error {
	return op.openSet(ctx, names, path, false, func(set *index.Shards) (err error) {
		snap, err := set.Snapshot()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, snap.Close()) }()
		x := &searched{set: snap, parts: snap.Snapshots(), snap: snap.Snapshots()[0]}
		for _, p := range x.parts { // one that says which model it is of
			if p.Header().Model != nil {
				x.snap = p
				break
			}
		}
		return use(x)
	})
}
