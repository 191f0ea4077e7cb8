package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

var (
	_ collection.Backuper  = (*shardedCollection)(nil)
	_ collection.Retrainer = (*shardedCollection)(nil)
	_ collection.Verifier  = (*shardedCollection)(nil)
)

// SetMaxDocuments implements [collection.Collection]. The limit is in the map; each shard keeps its share of it.
func (s *shardedCollection) SetMaxDocuments(ctx context.Context, maxDocuments *uint64) (collection.Config, error) {
	m, err := s.c.changeMapByID(ctx, s.id, func(m *Map) error {
		m.Config.MaxDocuments = maxDocuments
		_, err := m.Config.Completed()
		return errors.Join(err, checkMaxDocuments(maxDocuments, m.Shards))
	})
	if err != nil {
		return collection.Config{}, err
	}
	s.c.announceMap(m)() // wait, so that the next change has the new limit
	return m.Config, nil
}

// Retrain implements [collection.Retrainer]. It requests a training in the map, and waits until the coordinator has
// done it.
func (s *shardedCollection) Retrain(ctx context.Context) (*index.RetrainReport, error) {
	token, began := newToken(), time.Now()
	before, err := s.requestTraining(ctx, token)
	if err != nil {
		return nil, err
	}
	r := &index.RetrainReport{}
	r.Before = s.codecReport(ctx, before, r)
	// Wait for the next generation, or for the reason why it will not come.
	m, err := s.c.waitForMap(ctx, s.id, func(m *Map) (bool, error) {
		switch {
		case m.Failed != nil && m.Failed.For == token:
			return false, m.Failed.Cause.toError()
		case m.Current != nil && m.Current.Number != before.Current.Number:
			return true, nil
		case m.Wanted != token && m.For != token:
			return false, ErrConflict
		}
		return false, nil
	})
	if err != nil {
		// Withdraw the request, also if the caller's context has ended.
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer stop()
		wanted := func(m *Map) bool { return m.Wanted == token }
		_, _ = s.c.changeMapByID(ctx, s.id, changeIf(wanted, func(m *Map) { m.Wanted = "" }))
		return nil, err
	}
	r.After = s.codecReport(ctx, m, r)
	r.Seconds.Train = time.Since(began).Seconds()
	return r, nil
}

// requestTraining requests a training in the map, after one that is running has ended. before is the map before the
// request.
func (s *shardedCollection) requestTraining(ctx context.Context, token string) (before *Map, err error) {
	idle := func(m *Map) bool { return m.Wanted == "" && m.Next == nil }
	for before == nil && err == nil {
		if _, err = s.c.waitForMap(ctx, s.id, func(m *Map) (bool, error) { return idle(m), nil }); err != nil {
			break
		}
		_, err = s.c.changeMapByID(ctx, s.id, func(m *Map) error {
			before = nil
			switch {
			case m.Current == nil:
				return collection.ErrEmpty
			case !idle(m):
				return errUnchanged // changeMapByID returns the newer map, so that the next wait sees it
			}
			before = m.copyMap()
			m.Wanted = token
			return nil
		})
	}
	return before, err
}

// codecReport describes the codec of a collection, and sets the counts of its documents in r.
func (s *shardedCollection) codecReport(ctx context.Context, m *Map, r *index.RetrainReport) index.CodecReport {
	perShard, _ := newestStats(m, s.c.askStatus(ctx, &statusRequest{IDs: []string{s.id}, Stats: true}))
	stats := make([]collection.Stats, len(perShard))
	r.Docs, r.Passages, r.Tokens = 0, 0, 0
	for i, shard := range perShard {
		stats[i] = shard.Stats
		r.Docs += int(shard.Documents)
		r.Passages += int(shard.Passages)
		r.Tokens += int64(shard.Tokens)
	}
	d := s.c.sumGrowth(m, stats).Drift
	return index.CodecReport{Nbits: m.Current.Nbits, Centroids: d.Centroids, RMSE: d.AddedRMSE}
}

// Backup implements [collection.Backuper]: it writes one index file with the documents of all shards. The file is made
// and checked in the cache folder of this process, from replicas that are opened here if necessary.
func (s *shardedCollection) Backup(ctx context.Context, out io.Writer) (r *index.BackupReport, err error) {
	m, err := s.c.mapByID(s.id)
	if err != nil {
		return nil, err
	}
	if m.Current == nil {
		return nil, collection.ErrEmpty
	}
	// Take a snapshot of each shard, with all entries of its log.
	var shards []index.CopyFrom
	for shard := range m.Shards {
		replica, release, err := s.c.acquireReplica(ctx, s.id, shard, m.Current.Number)
		if err != nil {
			return nil, err
		}
		defer release()
		if err := replica.Poll(ctx); err != nil {
			return nil, fmt.Errorf("shard %d: %w", shard, err)
		}
		v, _, err := replica.Snapshot(ctx, 0)
		if errors.Is(err, collection.ErrEmpty) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", shard, err)
		}
		defer func() { err = errors.Join(err, v.Close()) }()
		shards = append(shards, index.CopyFrom{Snapshot: v.Snapshot()})
	}
	if len(shards) == 0 {
		return nil, collection.ErrEmpty
	}
	// Copy them into one file, check it and write it.
	dir, remove, err := s.c.createScratch()
	if err != nil {
		return nil, err
	}
	defer remove()
	path := filepath.Join(dir, "whole.plaid")
	o := &index.CopyOptions{Memory: s.c.cfg.Index.Memory, Logger: s.c.log}
	if _, err := index.Copy(ctx, path, shards, o); err != nil {
		return nil, err
	}
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	r, err = ix.Backup(ctx, out, nil)
	if r != nil {
		r.Generation = m.Current.Number
	}
	return r, errors.Join(err, ix.Close())
}

// Verify implements [collection.Verifier]. It reads and checks every byte that the store has of the collection, and of
// the replicas that are open here.
func (s *shardedCollection) Verify(ctx context.Context) error {
	if m, err := s.c.mapByID(s.id); err != nil {
		return err
	} else if m.Current == nil {
		return collection.ErrEmpty
	}
	dir, remove, err := s.c.createScratch()
	if err != nil {
		return err
	}
	defer remove()
	r, err := Verify(ctx, s.c.cfg.Store, VerifyOptions{Name: s.name, Dir: dir})
	if err != nil {
		return err
	}
	var errs []error
	for _, fault := range r.Faults {
		errs = append(errs, fmt.Errorf("%w: %s", storage.ErrCorrupt, fault))
	}
	for _, r := range s.c.openReplicas(func(k replicaKey) bool { return k.id == s.id }) {
		if err := r.Verify(ctx); err != nil {
			errs = append(errs, fmt.Errorf("the replica of shard %d: %w", r.shard, err))
		}
	}
	return errors.Join(errs...)
}
