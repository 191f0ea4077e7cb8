package storage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Defaults are search parameters that were found for the content of one
// generation. They are no part of it, nor of its digest: an index without them
// is searched as well, and programs that do not know of them pass them over.
type Defaults struct {
	// Docs and Tokens are the live ones of the index when it was tuned.
	Docs   uint32 `json:"docs"`
	Tokens uint64 `json:"tokens"`
	// Time is when, and Version by which program.
	Time    time.Time `json:"time"`
	Version string    `json:"version,omitempty"`
	// Passages says that the questions were made from documents of the index, and not
	// asked by anybody.
	Passages bool `json:"passages,omitempty"`
	// Classes have ascending K. A search uses the first whose K is not below
	// its own.
	Classes []DefaultClass `json:"classes"`
}

// DefaultClass is the parameters of searches for up to K documents, and what
// they were seen to reach.
type DefaultClass struct {
	K int `json:"k"`
	// Probes, Approx and Exact are those of search.Options; 0: derived there.
	Probes int `json:"probes"`
	Approx int `json:"approx"`
	Exact  int `json:"exact"`
	// Effort multiplies what is derived, as that of search.Options does; 0: 1.
	Effort float64 `json:"effort,omitempty"`
	// Scan says that nothing is probed; Probes is 0 then.
	Scan bool `json:"scan,omitempty"`
	// Target is the recall of exhaustive search that was asked for, WorstTarget that of the
	// worst query; Recall and HeldOut what the queries tuned on, and those held out, gave.
	// With Passages both are what the questions gave.
	Target      float64 `json:"target"`
	WorstTarget float64 `json:"worst_target,omitempty"`
	Recall      float64 `json:"recall"`
	HeldOut     float64 `json:"held_out"`
	// Worst is the recall of the worst query held out, Error the standard error of HeldOut.
	Worst float64 `json:"worst"`
	Error float64 `json:"standard_error"`
	// Queries is how many were held out, or made.
	Queries int `json:"held_out_queries"`
}

// Confirmed says whether the held-out queries reach the targets too.
func (c DefaultClass) Confirmed() bool { return c.HeldOut >= c.Target && c.Worst >= c.WorstTarget }

// For is the class of a search for k documents.
func (d *Defaults) For(k int) (c DefaultClass, ok bool) {
	for _, c := range d.Classes {
		if k <= c.K {
			return c, true
		}
	}
	return DefaultClass{}, false
}

// CommonDefaults is what holds for several indexes that are one collection: their
// parameters, where all have the same; or, where all that have a record only multiply what
// is derived, the largest effort of each class, with the least recall that was seen. A part
// without a record counts as an effort of 1. It is nil where the records contradict each
// other, and where there are none.
func CommonDefaults(parts []*Defaults) *Defaults {
	var common *Defaults
	without := false
	for _, d := range parts {
		switch {
		case d == nil:
			without = true
		case common == nil:
			all := *d
			all.Classes = slices.Clone(d.Classes)
			common = &all
		default:
			if len(d.Classes) != len(common.Classes) {
				return nil
			}
			for i := range common.Classes {
				if !common.Classes[i].join(d.Classes[i]) {
					return nil
				}
			}
			common.Docs += d.Docs
			common.Tokens += d.Tokens
		}
	}
	if common == nil || !without {
		return common
	}
	for i := range common.Classes {
		if !common.Classes[i].join(DefaultClass{K: common.Classes[i].K, Recall: 1, HeldOut: 1, Worst: 1}) {
			return nil
		}
	}
	return common
}

// chosen says whether parameters are named, and not only multiplied.
func (c DefaultClass) chosen() bool { return c.Scan || c.Probes != 0 || c.Approx != 0 || c.Exact != 0 }

// join takes in what another part has stored for the same K. It is false where the two
// contradict each other.
func (c *DefaultClass) join(d DefaultClass) bool {
	if c.K != d.K || c.Probes != d.Probes || c.Scan != d.Scan || c.Approx != d.Approx || c.Exact != d.Exact ||
		c.chosen() && c.Effort != d.Effort {
		return false
	}
	if !c.chosen() {
		c.Effort = max(cmp.Or(c.Effort, 1), cmp.Or(d.Effort, 1))
	}
	c.Target, c.WorstTarget = max(c.Target, d.Target), max(c.WorstTarget, d.WorstTarget)
	c.Recall, c.HeldOut = min(c.Recall, d.Recall), min(c.HeldOut, d.HeldOut)
	c.Worst, c.Error = min(c.Worst, d.Worst), max(c.Error, d.Error)
	c.Queries += d.Queries
	return true
}

// Limits of a record.
const (
	maxClasses   = 64
	maxParameter = 1<<31 - 1
	maxEffort    = 64
)

// Validate checks that the parameters are in range. Its error does not name a file.
func (d *Defaults) Validate() error {
	if n := len(d.Classes); n < 1 || n > maxClasses {
		return fmt.Errorf("%d classes of k; 1 to %d are possible", n, maxClasses)
	}
	last := 0
	for _, c := range d.Classes {
		if c.K <= last || c.K > maxParameter {
			return fmt.Errorf("class of k = %d after %d", c.K, last)
		}
		last = c.K
		if min(c.Probes, c.Approx, c.Exact) < 0 || max(c.Probes, c.Approx, c.Exact) > maxParameter {
			return fmt.Errorf("k = %d: %d probes, approximate budget %d, exact budget %d", c.K, c.Probes, c.Approx, c.Exact)
		}
		if !(c.Effort >= 0 && c.Effort <= maxEffort) {
			return fmt.Errorf("k = %d: an effort of %g", c.K, c.Effort)
		}
		if c.Scan && c.Probes != 0 {
			return fmt.Errorf("k = %d: a scan with %d probes", c.K, c.Probes)
		}
		for _, share := range []float64{c.Target, c.WorstTarget, c.Recall, c.HeldOut, c.Worst, c.Error} {
			if !(share >= 0 && share <= 1) {
				return fmt.Errorf("k = %d: a recall of %g", c.K, share)
			}
		}
	}
	return nil
}

// defaultsRecord is the stored form. A program that does not know of it may put
// another generation in the place of its own, which it is not for.
type defaultsRecord struct {
	Generation uint64 `json:"generation"`
	Defaults
}

// PutDefaults stores search parameters for a generation in the place of those
// that are there; nil removes them.
func (tx *Tx) PutDefaults(generation uint64, d *Defaults) error {
	if d == nil {
		return tx.root.Delete(layout.KeyDefaults)
	}
	if err := d.Validate(); err != nil {
		return err
	}
	return tx.putRecord(layout.KeyDefaults, defaultsRecord{generation, *d})
}

// Defaults reads what PutDefaults stored for this generation; nil if there is
// nothing. A damaged record is [ErrCorrupt], and the rest of the index can be
// used nevertheless.
func (v *Snapshot) Defaults() (d *Defaults, err error) {
	defer Guard(v.file.path, &err)()
	const what = "stored search parameters"
	var r defaultsRecord
	if ok, err := readRecord(v.tx, layout.KeyDefaults, v.file.path, what, &r); !ok || r.Generation != v.generation {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, v.corrupt(err, what)
	}
	return &r.Defaults, nil
}
