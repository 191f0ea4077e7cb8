package storage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/storage/internal/layout"
)

// Defaults are search parameters that were tuned for the content of one generation. They do not
// belong to the content, nor to its digest: an index without them can be searched, and programs that
// do not know them ignore them.
type Defaults struct {
	// Docs and Tokens are the numbers of live documents and tokens when the index was tuned.
	Docs   uint32 `json:"docs"`
	Tokens uint64 `json:"tokens"`
	// Time is when the index was tuned, Version the version of the program that did it.
	Time    time.Time `json:"time"`
	Version string    `json:"version,omitempty"`
	// Passages means that the queries were made from documents of the index, and are not real ones.
	Passages bool `json:"passages,omitempty"`
	// Classes have ascending K. A search uses the first whose K is not below its own.
	Classes []DefaultClass `json:"classes"`
}

// DefaultClass is the parameters of searches for up to K documents, and their measured recall.
type DefaultClass struct {
	K int `json:"k"`
	// Probes, Approx and Exact are the fields of search.Options. 0 means that search derives them.
	Probes int `json:"probes"`
	Approx int `json:"approx"`
	Exact  int `json:"exact"`
	// Effort multiplies derived parameters, as in search.Options. 0 means 1.
	Effort float64 `json:"effort,omitempty"`
	// Scan means that all documents are scanned instead of probed; Probes is 0 then.
	Scan bool `json:"scan,omitempty"`
	// Target is the wanted mean recall relative to exhaustive search, WorstTarget the wanted recall
	// of the worst query. Recall is the mean recall of the queries that were tuned on, HeldOut that
	// of the queries held out. With Passages both are that of the made queries.
	Target      float64 `json:"target"`
	WorstTarget float64 `json:"worst_target,omitempty"`
	Recall      float64 `json:"recall"`
	HeldOut     float64 `json:"held_out"`
	// Worst is the recall of the worst query held out, Error the standard error of HeldOut.
	Worst float64 `json:"worst"`
	Error float64 `json:"standard_error"`
	// Queries is the number of queries held out, or made.
	Queries int `json:"held_out_queries"`
}

// Confirmed reports whether the held-out queries reach the targets, too.
func (c DefaultClass) Confirmed() bool { return c.HeldOut >= c.Target && c.Worst >= c.WorstTarget }

// ClassFor returns the class of a search for k documents. ok is false if k is larger than every K.
func (d *Defaults) ClassFor(k int) (c DefaultClass, ok bool) {
	for _, c := range d.Classes {
		if k <= c.K {
			return c, true
		}
	}
	return DefaultClass{}, false
}

// CommonDefaults returns the defaults of several indexes that are searched as one, nil for an index
// without a record:
//
//   - If all records have the same parameters, it returns these.
//   - If all records have only an effort, it returns the largest effort of each class, with the lowest
//     measured recall. An index without a record counts as an effort of 1.
//   - Otherwise, or if no index has a record, it returns nil.
func CommonDefaults(indexes []*Defaults) *Defaults {
	var common *Defaults
	someLackRecord := false
	for _, d := range indexes {
		switch {
		case d == nil:
			someLackRecord = true
		case common == nil:
			first := *d
			first.Classes = slices.Clone(d.Classes)
			common = &first
		default:
			if len(d.Classes) != len(common.Classes) {
				return nil
			}
			for i := range common.Classes {
				if !common.Classes[i].mergeClass(d.Classes[i]) {
					return nil
				}
			}
			common.Docs += d.Docs
			common.Tokens += d.Tokens
		}
	}
	if common == nil || !someLackRecord {
		return common
	}
	for i := range common.Classes {
		withoutRecord := DefaultClass{K: common.Classes[i].K, Recall: 1, HeldOut: 1, Worst: 1}
		if !common.Classes[i].mergeClass(withoutRecord) {
			return nil
		}
	}
	return common
}

// setsParameters reports whether the class sets parameters, instead of only an effort.
func (c DefaultClass) setsParameters() bool {
	return c.Scan || c.Probes != 0 || c.Approx != 0 || c.Exact != 0
}

// mergeClass merges the class of another index into c. It returns false if the two contradict each
// other.
func (c *DefaultClass) mergeClass(d DefaultClass) bool {
	if c.K != d.K || c.Probes != d.Probes || c.Scan != d.Scan || c.Approx != d.Approx || c.Exact != d.Exact ||
		c.setsParameters() && c.Effort != d.Effort {
		return false
	}
	if !c.setsParameters() {
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
			return fmt.Errorf("k = %d: %d probes, approximate budget %d, exact budget %d",
				c.K, c.Probes, c.Approx, c.Exact)
		}
		if !(c.Effort >= 0 && c.Effort <= maxEffort) { // NaN too
			return fmt.Errorf("k = %d: an effort of %g", c.K, c.Effort)
		}
		if c.Scan && c.Probes != 0 {
			return fmt.Errorf("k = %d: a scan with %d probes", c.K, c.Probes)
		}
		for _, recall := range []float64{c.Target, c.WorstTarget, c.Recall, c.HeldOut, c.Worst, c.Error} {
			if !(recall >= 0 && recall <= 1) { // NaN too
				return fmt.Errorf("k = %d: a recall of %g", c.K, recall)
			}
		}
	}
	return nil
}

// defaultsRecord is the stored form of Defaults. It names its generation, since a program that does
// not know the record may replace the generation and leave the record.
type defaultsRecord struct {
	Generation uint64 `json:"generation"`
	Defaults
}

// PutDefaults replaces the search parameters of a generation. If d is nil, it removes them.
func (tx *Tx) PutDefaults(generation uint64, d *Defaults) error {
	if d == nil {
		return tx.root.Delete(layout.KeyDefaults)
	}
	if err := d.Validate(); err != nil {
		return err
	}
	return tx.putFrameJSON(layout.KeyDefaults, defaultsRecord{generation, *d})
}

// Defaults reads the search parameters that [Tx.PutDefaults] stored for this generation. It returns
// nil if none were stored. The error is [ErrCorrupt] for a damaged record; the index can be used
// without it.
func (v *Snapshot) Defaults() (d *Defaults, err error) {
	defer Guard(v.file.path, &err)()
	const what = "stored search parameters"
	var r defaultsRecord
	if ok, err := readFrameJSON(v.tx, layout.KeyDefaults, v.file.path, what, &r); !ok || r.Generation != v.generation {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, v.corruptError(err, what)
	}
	return &r.Defaults, nil
}
