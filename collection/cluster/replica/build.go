package replica

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/journal"
	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/storage/objects"
)

// minCheckpointBytes is the least size of entries that makes a checkpoint due, unless [Config.CheckpointBytes] is set.
const minCheckpointBytes = 64 << 20

// checkpointIfDue puts a checkpoint in the background, if this replica is the writer and enough entries have come.
func (r *Replica) checkpointIfDue(open *openShard) {
	limit := r.cfg.CheckpointBytes
	if limit == 0 {
		info, err := os.Stat(open.ix.Path())
		if err != nil {
			return
		}
		limit = max(minCheckpointBytes, info.Size()/4)
	}
	r.mu.Lock()
	due := r.writer && r.behind >= limit
	r.mu.Unlock()
	if !due {
		return
	}
	// Only one copy of the file is made at a time.
	select {
	case r.copySlot <- struct{}{}:
	default:
		return
	}
	r.background.Go(func() {
		defer func() { <-r.copySlot }()
		if err := r.putCheckpointIf(r.running, open, limit); err != nil && !r.isEnding() {
			r.log.Error("a checkpoint was not put; it will be tried again after some more entries", "error", err)
			r.mu.Lock()
			r.behind -= limit / 8 // due again after that many more bytes
			r.mu.Unlock()
		}
	})
}

// withCopySlot calls use with the open replica while no other copy of its file is being made.
func (r *Replica) withCopySlot(ctx context.Context, use func(context.Context, *openShard) error) error {
	return r.withOpen(ctx, 0, mustBeReady, func(open *openShard) error {
		select {
		case r.copySlot <- struct{}{}:
			defer func() { <-r.copySlot }()
			return use(ctx, open)
		case <-ctx.Done():
			return ctx.Err()
		case <-r.running.Done():
			return collection.ErrClosed
		}
	})
}

// Checkpoint puts a checkpoint, unless the newest one has all entries of the file.
func (r *Replica) Checkpoint(ctx context.Context) error {
	return r.withCopySlot(ctx, func(ctx context.Context, open *openShard) error {
		return r.putCheckpointIf(ctx, open, 0)
	})
}

// putCheckpointIf puts a checkpoint if entries of at least minBytes have come since the newest one, which another node
// may have put.
func (r *Replica) putCheckpointIf(ctx context.Context, open *openShard, minBytes int64) error {
	number := r.shard.Generation.Number
	checkpoints, err := r.journal.Checkpoints(ctx, number)
	if err != nil {
		return err
	}
	newest := uint64(0)
	if n := len(checkpoints); n > 0 {
		newest = checkpoints[n-1].Number
	}
	r.mu.Lock()
	entry := r.entry
	r.mu.Unlock()
	behind, err := r.countBehind(ctx, newest)
	if err != nil || behind < minBytes {
		return err
	}
	// The newest checkpoint may have everything. A first one is needed even so, unless the generation begins empty.
	if newest >= entry && (len(checkpoints) > 0 || r.shard.Generation.Begun) {
		return err
	}
	path := r.filePath("checkpoint")
	defer func() { _ = os.Remove(path) }()
	_ = os.Remove(path)
	if _, err := open.ix.BackupTo(ctx, path, &index.BackupOptions{Check: index.CheckChecksums}); err != nil {
		return err
	}
	if entry, err = r.putFile(ctx, path, number); err == nil {
		_, err = r.countBehind(ctx, entry)
	}
	return err
}

// countBehind counts the size of the entries after a checkpoint, and notes it. Entries that come meanwhile may be
// counted twice.
func (r *Replica) countBehind(ctx context.Context, checkpoint uint64) (behind int64, err error) {
	r.mu.Lock()
	counted := r.behind
	r.mu.Unlock()
	if behind, err = r.journal.Bytes(ctx, checkpoint, minEntryBytes); err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behind += behind - counted
	return behind, nil
}

// putFile puts an index file as a checkpoint of a generation, and returns the last entry in it.
func (r *Replica) putFile(ctx context.Context, path string, generation uint64) (entry uint64, err error) {
	ix, err := index.Open(ctx, path, &index.Options{Backend: r.cfg.Index.Backend})
	if err != nil {
		return 0, err
	}
	snap, err := ix.Snapshot()
	if err != nil {
		return 0, errors.Join(err, ix.Close())
	}
	applied, err := snap.Applied()
	if err = errors.Join(err, snap.Close(), ix.Close()); err != nil {
		return 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	name := r.journal.CheckpointName(generation, journal.Position{Number: applied.Sequence, Hash: applied.Mark})
	_, err = r.cfg.Store.Put(ctx, name, f, info.Size())
	if errors.Is(err, objects.ErrExists) { // another replica has put a checkpoint with the same entries
		err = nil
	}
	return applied.Sequence, err
}

// BuildNext encodes the shard with the codec of the next generation, and puts it as a checkpoint, unless there is one.
func (r *Replica) BuildNext(ctx context.Context, next Generation) error {
	return r.withCopySlot(ctx, func(ctx context.Context, open *openShard) error {
		checkpoints, err := r.journal.Checkpoints(ctx, next.Number)
		if err != nil || len(checkpoints) > 0 {
			return err
		}
		path, codec := r.filePath("next"), r.filePath("codec")
		removeFiles := func() { _, _ = os.Remove(path), os.Remove(codec) }
		removeFiles()
		defer removeFiles()
		if err := r.createEmpty(ctx, &next, codec); err != nil {
			return fmt.Errorf("codec of generation %d: %w", next.Number, err)
		}
		if _, err := open.ix.BackupTo(ctx, path, &index.BackupOptions{Check: index.CheckChecksums}); err != nil {
			return err
		}
		if err := r.reencode(ctx, path, codec); err != nil {
			return fmt.Errorf("generation %d: %w", next.Number, err)
		}
		_, err = r.putFile(ctx, path, next.Number)
		return err
	})
}

// reencode encodes an index file again, with the codec of the index file codec, and stores its search defaults.
func (r *Replica) reencode(ctx context.Context, path, codec string) (err error) {
	closing := func(close func() error) { err = errors.Join(err, close()) }
	codecIndex, err := index.Open(ctx, codec, &index.Options{Backend: r.cfg.Index.Backend})
	if err != nil {
		return err
	}
	defer closing(codecIndex.Close)
	snap, err := codecIndex.Snapshot()
	if err != nil {
		return err
	}
	defer closing(snap.Close)
	ix, err := index.Open(ctx, path, &index.Options{
		Write: true, NoSync: true, Backend: r.cfg.Index.Backend, Logger: r.log,
	})
	if err != nil {
		return err
	}
	defer closing(ix.Close)
	threads := max(r.cfg.Index.Threads/2, 1)
	_, err = ix.Retrain(ctx, &index.RetrainOptions{Like: snap, Threads: threads, Memory: r.cfg.Index.Memory})
	if err != nil {
		return err
	}
	check := quality.SelfCheckOptions{Seed: snap.Header().Build.Seed}
	defaults, _, err := store.MeasureSearches(ctx, ix, threads, check)
	if err == nil && defaults != nil {
		err = ix.SetDefaults(defaults)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, storage.ErrOutcomeUnknown) {
		r.log.Warn("the recall of a shard's searches was not measured", "error", err)
		err = nil
	}
	return err
}

// Sample returns about n random tokens of the shard for a training, [rows, dim], row-major.
func (r *Replica) Sample(ctx context.Context, n int, seed uint64) (tokens []float32, err error) {
	v, _, err := r.Snapshot(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	snap, rng := v.Snapshot(), rand.New(rand.NewPCG(seed, uint64(r.shard.Number)))
	liveBits, docs := snap.LiveSet()
	ordinals := make([]uint32, 0, docs)
	for i, w := range liveBits { // bit j of word i stands for the ordinal 64·i+j
		for ; w != 0; w &= w - 1 {
			ordinals = append(ordinals, uint32(64*i+bits.TrailingZeros64(w)))
		}
	}
	rng.Shuffle(len(ordinals), func(i, j int) { ordinals[i], ordinals[j] = ordinals[j], ordinals[i] })
	for _, o := range ordinals {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(tokens) >= n*snap.Dim() {
			break
		}
		rows, err := snap.Vectors(o)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, rows...)
	}
	return tokens, nil
}
