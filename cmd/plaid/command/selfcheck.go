package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
)

const noCheckHelp = "do not measure the recall of searches by questions made from the documents"

// checkRecall is selfCheck for commands that have done what they are for.
func (a *app) checkRecall(ctx context.Context, path string, threads int, seed uint64) *storage.Defaults {
	d, err := a.selfCheck(ctx, path, threads, seed)
	if err != nil {
		a.warn("the index is complete, but the recall of its searches was not measured: %v", err)
	}
	return d
}

// selfCheck measures the recall of an index whose codec was just trained, and stores it with
// what its searches need.
func (a *app) selfCheck(ctx context.Context, path string, threads int, seed uint64) (d *storage.Defaults, err error) {
	var state storage.State
	var generation uint64
	err = a.openSnapshot(ctx, path, func(_ *index.Index, snap *index.Snapshot) (err error) {
		state, generation = snap.State(), snap.Generation()
		e, err := search.NewAt(ctx, snap, &search.EngineOptions{Threads: threads})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.Close()) }()
		d, err = quality.SelfCheck(ctx, e, snap, quality.SelfCheckOptions{Seed: seed, Progress: a.progress()})
		return err
	})
	if err != nil || d == nil {
		return nil, err
	}
	d.Time = a.now().UTC().Truncate(time.Second)
	return d, a.open(ctx, path, true, func(ix *index.Index) error { return store(ix, d, state, generation) })
}

// checkedLines prints what was measured, if anything was.
func checkedLines(b *bytes.Buffer, d *storage.Defaults) {
	if d == nil {
		return
	}
	for _, c := range d.Classes {
		setting := quality.Setting{Effort: c.Effort}
		fmt.Fprintf(b, "k ≤ %d: %v; %s\n", c.K, setting, checkedText(c))
	}
}

// checkedText is what questions made from passages have shown of a class.
func checkedText(c storage.DefaultClass) string {
	text := fmt.Sprintf("recall %.4f of %d questions made from passages, so about %.3f of real ones, %s wanted", c.Recall, c.Queries, c.HeldOut, out.Float(c.Target))
	if !c.Confirmed() {
		text += ", NOT REACHED"
	}
	return text
}
