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
	_ collection.Backuper  = (*shards)(nil)
	_ collection.Retrainer = (*shards)(nil)
	_ collection.Verifier  = (*shards)(nil)
)

// SetMaxDocuments implements [collection.Collection]: it is in the map, and each shard keeps its share.
func (s *shards) SetMaxDocuments(ctx context.Context, most *uint64) (collection.Config, error) {
	m, err := s.c.updateID(ctx, s.id, func(m *Map) error {
		m.Config.MaxDocuments = most
		_, err := m.Config.Completed()
		return errors.Join(err, checkMost(most, m.Shards))
	})
	if err != nil {
		return collection.Config{}, err
	}
	s.c.tell(m)() // so that whoever writes next knows it
	return m.Config, nil
}

// Retrain implements [collection.Retrainer]: it asks for a training in the map, and waits for the coordinator to
// do it.
func (s *shards) Retrain(ctx context.Context) (*index.RetrainReport, error) {
	token, began := newToken(), time.Now()
	var before *Map
	for before == nil {
		_, err := s.c.await(ctx, s.id, func(m *Map) (bool, error) {
			return m.Wanted == "" && m.Next == nil, nil // after one that goes on
		})
		if err != nil {
			return nil, err
		}
		_, err = s.c.updateID(ctx, s.id, func(m *Map) error {
			if m.Current == nil {
				return collection.ErrEmpty
			}
			if before = nil; m.Wanted == "" && m.Next == nil {
				before = m.clone()
				m.Wanted = token
				return nil
			}
			return errSame // which updateID takes over, so that await knows
		})
		if err != nil {
			return nil, err
		}
	}
	r := &index.RetrainReport{}
	of := func(m *Map) index.CodecReport {
		all, _ := statsOf(m, s.c.ask(ctx, &statusAsk{IDs: []string{s.id}, Stats: true}))
		stats := make([]collection.Stats, len(all))
		r.Docs, r.Passages, r.Tokens = 0, 0, 0
		for i, of := range all {
			stats[i] = of.Stats
			r.Docs, r.Passages, r.Tokens = r.Docs+int(of.Documents), r.Passages+int(of.Passages), r.Tokens+int64(of.Tokens)
		}
		d := s.c.growthOf(m, stats).Drift
		return index.CodecReport{Nbits: m.Current.Nbits, Centroids: d.Centroids, RMSE: d.AddedRMSE}
	}
	r.Before = of(before)
	m, err := s.c.await(ctx, s.id, func(m *Map) (bool, error) {
		switch {
		case m.Failed != nil && m.Failed.For == token:
			return false, m.Failed.Cause.err()
		case m.Current != nil && m.Current.Number != before.Current.Number:
			return true, nil
		case m.Wanted != token && m.For != token:
			return false, ErrConflict
		}
		return false, nil
	})
	if err != nil {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer stop()
		_, _ = s.c.updateID(ctx, s.id, func(m *Map) error { // the caller has gone
			if m.Wanted != token {
				return errSame
			}
			m.Wanted = ""
			return nil
		})
		return nil, err
	}
	r.After = of(m)
	r.Seconds.Train = time.Since(began).Seconds()
	return r, nil
}

// Backup implements [collection.Backuper]: one index file of all shards, as that of a folder is. It is made in
// the folder of this process, of replicas that are opened here where they are not, and checked.
func (s *shards) Backup(ctx context.Context, out io.Writer) (r *index.BackupReport, err error) {
	m, err := s.c.mapByID(s.id)
	if err != nil {
		return nil, err
	}
	if m.Current == nil {
		return nil, collection.ErrEmpty
	}
	var from []index.CopyFrom
	for shard := range m.Shards {
		replica, done, err := s.c.borrow(ctx, s.id, shard, m.Current.Number)
		if err != nil {
			return nil, err
		}
		defer done()
		if err := replica.Poll(ctx); err != nil {
			return nil, fmt.Errorf("shard %d: %w", shard, err)
		}
		v, _, err := replica.View(ctx, 0)
		if errors.Is(err, collection.ErrEmpty) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", shard, err)
		}
		defer func() { err = errors.Join(err, v.Close()) }()
		from = append(from, index.CopyFrom{Snapshot: v.Snapshot()})
	}
	if len(from) == 0 {
		return nil, collection.ErrEmpty
	}
	dir, remove, err := s.c.scratch()
	if err != nil {
		return nil, err
	}
	defer remove()
	path := filepath.Join(dir, "whole.plaid")
	if _, err := index.Copy(ctx, path, from, &index.CopyOptions{Memory: s.c.c.Index.Memory, Logger: s.c.log}); err != nil {
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

// Verify implements [collection.Verifier]: it reads every byte that the store has of the collection, and the
// replicas that are open here.
func (s *shards) Verify(ctx context.Context) error {
	if m, err := s.c.mapByID(s.id); err != nil {
		return err
	} else if m.Current == nil {
		return collection.ErrEmpty
	}
	dir, remove, err := s.c.scratch()
	if err != nil {
		return err
	}
	defer remove()
	r, err := Verify(ctx, s.c.c.Store, VerifyOptions{Name: s.name, Dir: dir})
	if err != nil {
		return err
	}
	var errs []error
	for _, fault := range r.Faults {
		errs = append(errs, fmt.Errorf("%w: %s", storage.ErrCorrupt, fault))
	}
	for _, r := range s.c.opened(func(k replicaKey) bool { return k.id == s.id }) {
		if err := r.Verify(ctx); err != nil {
			errs = append(errs, fmt.Errorf("the replica of shard %d: %w", r.shard, err))
		}
	}
	return errors.Join(errs...)
}
