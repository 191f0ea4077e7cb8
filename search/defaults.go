package search

import "github.com/plaid-ir/plaid/index"

// useStored fills in the parameters that the index has stored for searches of
// this k, if the search names none of its own. They were found on searches of
// the whole index, so a filter, which leaves another number of documents, goes
// by what is derived.
func (o *Options) useStored(snap *index.Snapshot) error {
	if o.Mode != Pruned || o.Derive || o.Filter != nil || o.Probes != 0 || o.Approx != 0 || o.Exact != 0 {
		return nil
	}
	d, err := snap.Defaults()
	if err != nil || d == nil {
		return err
	}
	if c, ok := d.For(o.K); ok {
		o.Probes, o.Approx, o.Exact = c.Probes, c.Approx, c.Exact
	}
	return nil
}
