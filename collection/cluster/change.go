package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/collection/cluster/replica"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// changeAsk is a change of one shard.
type changeAsk struct {
	Batch     replica.Batch     `json:"batch"`
	Documents []askedDocument   `json:"documents,omitzero"`
	Replace   bool              `json:"replace,omitempty"`
	Model     *storage.Model    `json:"model,omitempty"`
	Set       map[string][]byte `json:"set,omitzero"`
	// Only selects documents of the shard.
	Only collection.Selection `json:"only"`
}

// askedDocument is a document whose metadata and vectors travel as they are: JSON would change their form.
type askedDocument struct {
	collection.DocumentInput
	Metadata []byte `json:",omitzero"`
	Vectors  floats `json:",omitzero"`
}

// changed is the outcome of a change.
type changed struct {
	Entry    uint64             `json:"entry"`
	Receipt  collection.Receipt `json:"receipt,omitzero"`
	Affected index.Affected     `json:"affected,omitzero"`
}

func (in *changeAsk) documents() []collection.DocumentInput {
	docs := make([]collection.DocumentInput, len(in.Documents))
	for i := range docs {
		d := &in.Documents[i]
		docs[i] = d.DocumentInput
		docs[i].Metadata, docs[i].Vectors = d.Metadata, d.Vectors
	}
	return docs
}

func (in *changeAsk) options() collection.UpdateOptions {
	return collection.UpdateOptions{Replace: in.Replace, Model: in.Model}
}

// doCheck finds out whether the documents of a shard would be refused.
func (c *Cluster) doCheck(ctx context.Context, a *asked, in *changeAsk) (*answers[answered], error) {
	return eachShard(ctx, c, a, func(h *held, _ *answered) error {
		return h.view.CheckUpdate(ctx, in.documents(), in.options())
	})
}

// doChange makes a change of one shard.
func (c *Cluster) doChange(ctx context.Context, a *asked, do func(r *replica.Replica, out *changed) error) (*changed,
	error) {
	if len(a.Shards) != 1 {
		return nil, fmt.Errorf("%w: a change of %d shards", errMessage, len(a.Shards))
	}
	if err := c.cutOff(); err != nil {
		return nil, err
	}
	r, err := c.here(ctx, a, a.Shards[0].Shard)
	if err != nil {
		return nil, err
	}
	out := &changed{}
	return out, do(r, out)
}

func (c *Cluster) doUpdate(ctx context.Context, a *asked, in *changeAsk) (*changed, error) {
	return c.doChange(ctx, a, func(r *replica.Replica, out *changed) (err error) {
		out.Receipt, out.Entry, err = r.Update(ctx, in.Batch, in.documents(), in.options())
		return err
	})
}

func (c *Cluster) doDelete(ctx context.Context, a *asked, in *changeAsk) (*changed, error) {
	return c.doChange(ctx, a, func(r *replica.Replica, out *changed) (err error) {
		out.Affected, out.Entry, err = r.Delete(ctx, in.Batch, lenient(in.Only))
		return err
	})
}

func (c *Cluster) doMetadata(ctx context.Context, a *asked, in *changeAsk) (*changed, error) {
	set := make(map[string]json.RawMessage, len(in.Set))
	for key, value := range in.Set {
		set[key] = value
	}
	return c.doChange(ctx, a, func(r *replica.Replica, out *changed) (err error) {
		out.Affected, out.Entry, err = r.UpdateMetadata(ctx, in.Batch, lenient(in.Only), set)
		return err
	})
}

// atOnce calls do for shards, all at a time.
func atOnce[T any](shards []int, do func(shard int) (T, error)) (done map[int]T, errs map[int]error) {
	done, errs = map[int]T{}, map[int]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, shard := range shards {
		wg.Go(func() {
			out, err := do(shard)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs[shard] = err
			} else {
				done[shard] = out
			}
		})
	}
	wg.Wait()
	return done, errs
}

// inShards makes the changes of several shards at a time, and again, as long as there is time, those of
// shards that had too much to do while others were done.
func (s *shards) inShards(ctx context.Context, op string, parts map[int]*changeAsk) (map[int]*changed,
	map[int]error) {
	change := func(shard int) (*changed, error) { return s.change(ctx, op, shard, *parts[shard]) }
	done, errs := atOnce(sorted(parts), change)
	for len(done) > 0 {
		var busy []int
		wait := time.Duration(0)
		for shard, err := range errs {
			if e, ok := errors.AsType[*collection.BusyError](err); ok {
				busy, wait = append(busy, shard), max(wait, e.RetryAfter)
			}
		}
		deadline, ok := ctx.Deadline()
		if len(busy) == 0 || !ok || time.Until(deadline) < wait {
			break
		}
		if pause(ctx, wait); ctx.Err() != nil {
			break
		}
		again, failed := atOnce(busy, change)
		for _, shard := range busy {
			delete(errs, shard)
		}
		maps.Copy(done, again)
		maps.Copy(errs, failed)
	}
	return done, errs
}

// failed is the error if some changes failed: that of the first shard whose outcome is unknown, or
// of the first one.
func failed(errs map[int]error) (first error) {
	for _, shard := range sorted(errs) {
		if err := errs[shard]; first == nil || errors.Is(err, storage.ErrOutcomeUnknown) && !errors.Is(first,
			storage.ErrOutcomeUnknown) {
			first = err
		}
	}
	return first
}

// Update implements [collection.Collection]. What can be wrong with documents is found before any of them is
// sent, as far as that can be known; a shard makes its part as a whole or not at all. A change that some
// shards have made and others have not is a [*collection.PartlyError].
func (s *shards) Update(ctx context.Context, given []collection.DocumentInput,
	o collection.UpdateOptions) (collection.Receipt, error) {
	if err := o.Model.Validate(); err != nil {
		return collection.Receipt{}, fmt.Errorf("%w: %w", collection.ErrConfig, err)
	}
	m, docs, err := s.begun(ctx, given, o)
	if err != nil || len(docs) == 0 {
		return collection.Receipt{}, err
	}
	parts, places, err := s.apart(m, docs, o)
	if err != nil {
		return collection.Receipt{}, err
	}
	if len(parts) > 1 {
		if err := s.check(ctx, parts, places); err != nil {
			return collection.Receipt{}, err
		}
	}
	done, errs := s.inShards(ctx, "update", parts)
	r := collection.Receipt{Numbers: make([]uint64, len(docs)), IDs: make([]string, len(docs)),
		Generation: m.Current.Number}
	var stored []int
	for shard, part := range done {
		receipt := &part.Receipt
		if len(receipt.Numbers) != len(places[shard]) || len(receipt.IDs) != len(places[shard]) {
			errs[shard] = fmt.Errorf("%w: shard %d: a receipt of %d documents", storage.ErrOutcomeUnknown, shard,
				len(receipt.Numbers))
			continue
		}
		for i, place := range places[shard] {
			r.Numbers[place], r.IDs[place] = numberIn(shard, receipt.Numbers[i]), receipt.IDs[i]
		}
		stored = append(stored, places[shard]...)
		r.Stored.Add(receipt.Stored)
		r.Replaced += receipt.Replaced
		r.Empty += receipt.Empty
		r.Evicted += receipt.Evicted
	}
	if len(errs) == 0 {
		return r, nil
	}
	for shard, err := range errs {
		errs[shard] = placed(err, places[shard])
	}
	if err = failed(errs); len(stored) > 0 {
		slices.Sort(stored)
		err = &collection.PartlyError{Documents: stored, Done: r.Stored, Err: err}
	}
	return collection.Receipt{}, err
}

// begun checks documents, and makes sure that the collection has a generation that takes them.
func (s *shards) begun(ctx context.Context, given []collection.DocumentInput, o collection.UpdateOptions) (*Map,
	[]collection.DocumentInput, error) {
	m, err := s.current(ctx)
	for range 8 {
		if err != nil {
			return nil, nil, err
		}
		known := 0
		if m.Current != nil {
			known = m.Current.Dim
		}
		docs, err := collection.CheckDocuments(given, known)
		if err != nil {
			return nil, nil, err
		}
		dim := known
		for i := range docs {
			dim = max(dim, docs[i].Dim)
		}
		if m.Current != nil && dim == known || len(docs) == 0 {
			if m.Current != nil {
				err = m.Current.Model.Check(o.Model)
			}
			return m, docs, err
		}
		if m, err = s.c.begin(ctx, m, dim, o); err == nil && m.ID != s.id {
			err = s.gone()
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("%w: %q does not take the dimension", collection.ErrUnreachable, s.name)
}

// apart takes documents apart by shard, with their places in the request. Documents without an id get a random one.
func (s *shards) apart(m *Map, docs []collection.DocumentInput, o collection.UpdateOptions) (parts map[int]*changeAsk,
	places map[int][]int, err error) {
	parts, places = map[int]*changeAsk{}, map[int][]int{}
	for i := range docs {
		d := &docs[i]
		if d.ID == "" { // not its number: a build that ends meanwhile may have a document of that name
			d.ID = randomID()
		}
		if _, err := vectors.PassageOf(d.ID, d.Metadata); err != nil {
			return nil, nil, &collection.DocumentError{Document: i, ID: d.ID, Token: -1, Err: err}
		}
		shard := m.shardOf(d.ID)
		p := parts[shard]
		if p == nil {
			p = &changeAsk{Replace: o.Replace, Model: o.Model}
			parts[shard] = p
		}
		p.Documents = append(p.Documents, askedDocument{*d, d.Metadata, d.Vectors})
		places[shard] = append(places[shard], i)
	}
	return parts, places, nil
}

// placed turns the place of a document in the part of a shard into that in the request.
func placed(err error, places []int) error {
	e, ok := errors.AsType[*collection.DocumentError](err)
	if !ok || e.Document < 0 || e.Document >= len(places) || errors.Is(err, storage.ErrOutcomeUnknown) {
		return err
	}
	return &collection.DocumentError{Document: places[e.Document], ID: e.ID, Token: e.Token, Err: e.Err}
}

// check asks shards whether they would refuse documents, so that none of them stores its part if another one
// will not. Vectors do not matter, and metadata is looked at only if it makes a passage.
func (s *shards) check(ctx context.Context, parts map[int]*changeAsk, places map[int][]int) error {
	light := map[int]*changeAsk{}
	for shard, p := range parts {
		l := *p
		l.Documents = slices.Clone(p.Documents)
		for i := range l.Documents {
			d := &l.Documents[i]
			d.Vectors = nil
			d.KeepMetadata = d.KeepMetadata && d.Metadata == nil
			if passage, _ := vectors.PassageOf(d.ID, d.Metadata); passage == nil {
				d.Metadata = nil
			}
		}
		light[shard] = &l
	}
	_, errs := atOnce(sorted(light), func(shard int) (map[int]*answered, error) {
		_, found, err := all[answered](ctx, s, "check", only(shard), light[shard])
		return found, placed(err, places[shard])
	})
	return failed(errs)
}

// selected makes a change of the documents of a selection.
func (s *shards) selected(ctx context.Context, op string, sel collection.Selection, in changeAsk) (index.Affected,
	error) {
	var n index.Affected
	if err := sel.CheckOne(); err != nil {
		return n, err
	}
	m, err := s.filled(ctx)
	if err == nil {
		err = checkWhere(sel.Where)
	}
	if err == nil {
		err = s.checkFields(ctx, sel.Where)
	}
	if err != nil {
		return n, err
	}
	only, parts := split(&sel, m.Shards), map[int]*changeAsk{}
	for _, shard := range only.shards() {
		part := in
		part.Only = only.in(shard)
		parts[shard] = &part
	}
	done, errs := s.inShards(ctx, op, parts)
	for _, part := range done {
		n.Add(part.Affected)
	}
	for shard, err := range errs {
		if errors.Is(err, collection.ErrEmpty) { // the shard is, not the collection
			delete(errs, shard)
		}
	}
	if err = failed(errs); err != nil && n != (index.Affected{}) {
		err = &collection.PartlyError{Done: n, Err: err}
	}
	if err != nil {
		return index.Affected{}, err
	}
	return n, nil
}

// Delete implements [collection.Collection].
func (s *shards) Delete(ctx context.Context, sel collection.Selection) (index.Affected, error) {
	return s.selected(ctx, "delete", sel, changeAsk{})
}

// UpdateMetadata implements [collection.Collection].
func (s *shards) UpdateMetadata(ctx context.Context, sel collection.Selection,
	set map[string]json.RawMessage) (index.Affected, error) {
	if err := collection.CheckFields(set); err != nil {
		return index.Affected{}, err
	}
	fields := make(map[string][]byte, len(set)) // in JSON a text would change its form
	for key, value := range set {
		fields[key] = value
	}
	return s.selected(ctx, "metadata", sel, changeAsk{Set: fields})
}
