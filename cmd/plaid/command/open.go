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

// opener opens indexes, and the devices that search them, as the global flags say.
type opener struct {
	stdio
	lockTimeout time.Duration
	// devices are the opened devices, by the names that the flags gave.
	devices map[string]kernels.Device
}

// openWithLockTimeout opens indexes without waiting for a lock. If another process holds one, it
// logs that and tries again with --lock-timeout.
func openWithLockTimeout[T any](op *opener, write bool, open func(*index.Options) (T, error)) (T, error) {
	o := index.Options{Write: write, Logger: op.logger()}
	opened, err := open(&o)
	if op.lockTimeout > 0 && errors.Is(err, storage.ErrLocked) {
		op.logger().Info("waiting for the lock", "for", op.lockTimeout)
		o.LockTimeout = op.lockTimeout
		return open(&o)
	}
	return opened, err
}

// checkSingleFile returns an error if the path is a folder and the command needs a file. It is
// called before long work begins.
func checkSingleFile(path string) error {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return nil // opening the file reports the error
	}
	if paths, err := index.ShardPaths(path); err == nil {
		return fmt.Errorf("%s: %w: the command needs one file, such as %s", path, files.ErrFolder, paths[0])
	}
	return fmt.Errorf("%s: %w: an index is a file", path, files.ErrFolder)
}

// open opens an index and hands it to use.
func (op *opener) open(ctx context.Context, path string, write bool, use func(*index.Index) error) (err error) {
	if err := checkSingleFile(path); err != nil {
		return err
	}
	begin := op.now()
	ix, err := openWithLockTimeout(op, write,
		func(o *index.Options) (*index.Index, error) { return index.Open(ctx, path, o) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	if err := op.logOpened(op.now().Sub(begin), ix); err != nil {
		return err
	}
	return use(ix)
}

// openSnapshot opens an index for reading and hands a snapshot of it to use.
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

// indexNames name the index files of a command: INDEX, which may be a folder, and those of --shard,
// which are searched together with it.
type indexNames struct{ shardPaths []string }

// severalHelp is the help on several indexes.
const severalHelp = `INDEX may be a folder: all its files *.plaid are used as one index, together with the
files and folders that --shard names. Each file is a shard. They must have the same codec (docs/scale.md).`

func (x *indexNames) register(f *pflag.FlagSet) {
	f.StringArrayVar(&x.shardPaths, "shard", nil,
		"`FILE` of another shard, or a folder of shards, used as one index with INDEX; may be repeated")
}

// indexPaths returns the paths of all index files, in order. first is INDEX.
func (x *indexNames) indexPaths(first string) ([]string, error) {
	var allPaths []string
	for _, path := range slices.Concat([]string{first}, x.shardPaths) {
		paths, err := index.ShardPaths(path)
		if err != nil {
			return nil, err
		}
		allPaths = append(allPaths, paths...)
	}
	return allPaths, nil
}

// openShards opens an index, or several as one, and hands them to use.
func (op *opener) openShards(ctx context.Context, names *indexNames, path string, write bool,
	use func(*index.Shards) error) (err error) {
	paths, err := names.indexPaths(path)
	if err != nil {
		return err
	}
	begin := op.now()
	shards, err := openWithLockTimeout(op, write,
		func(o *index.Options) (*index.Shards, error) { return index.OpenShards(ctx, paths, o) })
	if differ, ok := errors.AsType[*index.CodecError](err); ok && len(names.shardPaths) == 0 {
		return fmt.Errorf("%s is a folder, and %w: name one of its %d indexes", path, differ, len(paths))
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shards.Close()) }()
	if err := op.logOpened(op.now().Sub(begin), shards.Files()...); err != nil {
		return err
	}
	return use(shards)
}

// searchTarget is the index that a command searches, or several that are searched as one.
type searchTarget struct {
	shardsSnapshot *index.ShardsSnapshot
	// shards are its index files; the shard number of a hit or an explanation stands for one of
	// them.
	shards []*index.Snapshot
	// snap is the one whose codec and model are those of all.
	snap *index.Snapshot
}

// hasSeveralFiles reports whether there is more than one index file.
func (x *searchTarget) hasSeveralFiles() bool { return len(x.shards) > 1 }

// openSearched opens the searched index, or several as one, for reading, and hands them to use.
func (op *opener) openSearched(ctx context.Context, names *indexNames, path string,
	use func(*searchTarget) error) error {
	return op.openShards(ctx, names, path, false, func(shards *index.Shards) (err error) {
		snap, err := shards.Snapshot()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, snap.Close()) }()
		target := &searchTarget{shardsSnapshot: snap, shards: snap.Snapshots(), snap: snap.Snapshots()[0]}
		for _, shard := range target.shards { // prefer an index that names its model
			if shard.Header().Model != nil {
				target.snap = shard
				break
			}
		}
		return use(target)
	})
}
