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

// changeRequest is a change of one shard.
type changeRequest struct {
	Batch     replica.Batch     `json:"batch"`
	Documents []wireDocument    `json:"documents,omitzero"`
	Replace   bool              `json:"replace,omitempty"`
	Model     *storage.Model    `json:"model,omitempty"`
	Set       map[string][]byte `json:"set,omitzero"`
	// Only selects documents of the shard.
	Only collection.Selection `json:"only"`
}

// wireDocument is a document whose metadata and vectors are encoded separately: JSON would change their form.
type wireDocument struct {
	collection.DocumentInput
	Metadata []byte `json:",omitzero"`
	Vectors  floats `json:",omitzero"`
}

// changeResult is the outcome of a change.
type changeResult struct {
	Entry    uint64             `json:"entry"`
	Receipt  collection.Receipt `json:"receipt,omitzero"`
	Affected index.Affected     `json:"affected,omitzero"`
}

// documents returns the documents of the request.
func (in *changeRequest) documents() []collection.DocumentInput {
	docs := make([]collection.DocumentInput, len(in.Documents))
	for i := range docs {
		d := &in.Documents[i]
		docs[i] = d.DocumentInput
		docs[i].Metadata, docs[i].Vectors = d.Metadata, d.Vectors
	}
	return docs
}

// options returns the options of the update.
func (in *changeRequest) options() collection.UpdateOptions {
	return collection.UpdateOptions{Replace: in.Replace, Model: in.Model}
}

// doCheck checks whether the shards would refuse documents.
func (c *Cluster) doCheck(ctx context.Context, target *shardTarget, in *changeRequest) (*answers[answerHead], error) {
	return eachShard(ctx, c, target, func(h *openShard, _ *answerHead) error {
		return h.snapshot.CheckUpdate(ctx, in.documents(), in.options())
	})
}

// doChange calls change with the replica of the one shard that is changed.
func (c *Cluster) doChange(ctx context.Context, target *shardTarget,
	change func(r *replica.Replica, out *changeResult) error) (*changeResult, error) {
	if len(target.Shards) != 1 {
		return nil, fmt.Errorf("%w: a change of %d shards", errMessage, len(target.Shards))
	}
	if err := c.checkCutOff(); err != nil {
		return nil, err
	}
	r, err := c.replicaForRead(ctx, target, target.Shards[0].Shard)
	if err != nil {
		return nil, err
	}
	out := &changeResult{}
	return out, change(r, out)
}

// doUpdate stores documents of one shard.
func (c *Cluster) doUpdate(ctx context.Context, target *shardTarget, in *changeRequest) (*changeResult, error) {
	return c.doChange(ctx, target, func(r *replica.Replica, out *changeResult) (err error) {
		out.Receipt, out.Entry, err = r.Update(ctx, in.Batch, in.documents(), in.options())
		return err
	})
}

// doDelete deletes documents of one shard.
func (c *Cluster) doDelete(ctx context.Context, target *shardTarget, in *changeRequest) (*changeResult, error) {
	return c.doChange(ctx, target, func(r *replica.Replica, out *changeResult) (err error) {
		out.Affected, out.Entry, err = r.Delete(ctx, in.Batch, toLenient(in.Only))
		return err
	})
}

// doMetadata sets fields of the metadata of documents of one shard.
func (c *Cluster) doMetadata(ctx context.Context, target *shardTarget, in *changeRequest) (*changeResult, error) {
	set := make(map[string]json.RawMessage, len(in.Set))
	for key, value := range in.Set {
		set[key] = value
	}
	return c.doChange(ctx, target, func(r *replica.Replica, out *changeResult) (err error) {
		out.Affected, out.Entry, err = r.UpdateMetadata(ctx, in.Batch, toLenient(in.Only), set)
		return err
	})
}

// forEachShard calls change for shards concurrently. It returns the results and the errors by shard.
func forEachShard[T any](shards []int, change func(shard int) (T, error)) (done map[int]T, errs map[int]error) {
	done, errs = map[int]T{}, map[int]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, shard := range shards {
		wg.Go(func() {
			out, err := change(shard)
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

// changeShards makes the changes of several shards concurrently. If some shards are busy while others succeed, it
// repeats those, as long as there is time.
func (s *shardedCollection) changeShards(ctx context.Context, op string,
	requests map[int]*changeRequest) (map[int]*changeResult, map[int]error) {
	change := func(shard int) (*changeResult, error) { return s.changeShard(ctx, op, shard, *requests[shard]) }
	done, errs := forEachShard(sortedKeys(requests), change)
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
		if sleepFor(ctx, wait); ctx.Err() != nil {
			break
		}
		retried, failed := forEachShard(busy, change)
		for _, shard := range busy {
			delete(errs, shard)
		}
		maps.Copy(done, retried)
		maps.Copy(errs, failed)
	}
	return done, errs
}

// worstError returns the error of the first shard whose outcome is unknown, or else of the first shard, nil without
// errors.
func worstError(errs map[int]error) (first error) {
	for _, shard := range sortedKeys(errs) {
		err := errs[shard]
		unknown := errors.Is(err, storage.ErrOutcomeUnknown) && !errors.Is(first, storage.ErrOutcomeUnknown)
		if first == nil || unknown {
			first = err
		}
	}
	return first
}

// Update implements [collection.Collection]. Faults of documents are found before any document is sent, as far as that
// is possible. Each shard stores its documents as a whole or not at all. If some shards have stored theirs and others
// have not, the error is a [*collection.PartialError].
func (s *shardedCollection) Update(ctx context.Context, input []collection.DocumentInput,
	o collection.UpdateOptions) (collection.Receipt, error) {
	if err := o.Model.Validate(); err != nil {
		return collection.Receipt{}, fmt.Errorf("%w: %w", collection.ErrConfig, err)
	}
	// Check the documents, and split them by shard.
	m, docs, err := s.prepareUpdate(ctx, input, o)
	if err != nil || len(docs) == 0 {
		return collection.Receipt{}, err
	}
	requests, indices, err := s.splitByShard(m, docs, o)
	if err != nil {
		return collection.Receipt{}, err
	}
	if len(requests) > 1 {
		if err := s.checkUpdate(ctx, requests, indices); err != nil {
			return collection.Receipt{}, err
		}
	}
	// Store them, and put the receipts together.
	done, errs := s.changeShards(ctx, "update", requests)
	r := collection.Receipt{
		Numbers:    make([]uint64, len(docs)),
		IDs:        make([]string, len(docs)),
		Generation: m.Current.Number,
	}
	var stored []int
	for shard, result := range done {
		receipt := &result.Receipt
		if len(receipt.Numbers) != len(indices[shard]) || len(receipt.IDs) != len(indices[shard]) {
			errs[shard] = fmt.Errorf("%w: shard %d: a receipt of %d documents", storage.ErrOutcomeUnknown, shard,
				len(receipt.Numbers))
			continue
		}
		for j, i := range indices[shard] {
			r.Numbers[i], r.IDs[i] = documentNumber(shard, receipt.Numbers[j]), receipt.IDs[j]
		}
		stored = append(stored, indices[shard]...)
		r.Stored.Add(receipt.Stored)
		r.Replaced += receipt.Replaced
		r.Empty += receipt.Empty
		r.Evicted += receipt.Evicted
	}
	if len(errs) == 0 {
		return r, nil
	}
	// Say which documents were not stored.
	for shard, err := range errs {
		errs[shard] = toRequestIndex(err, indices[shard])
	}
	if err = worstError(errs); len(stored) > 0 {
		slices.Sort(stored)
		err = &collection.PartialError{Documents: stored, Done: r.Stored, Err: err}
	}
	return collection.Receipt{}, err
}

// prepareUpdate checks documents, and makes sure that the collection has a generation of their dimension.
func (s *shardedCollection) prepareUpdate(ctx context.Context, input []collection.DocumentInput,
	o collection.UpdateOptions) (*Map, []collection.DocumentInput, error) {
	m, err := s.currentMap(ctx)
	for range 8 {
		if err != nil {
			return nil, nil, err
		}
		knownDim := 0
		if m.Current != nil {
			knownDim = m.Current.Dim
		}
		docs, err := collection.CheckDocuments(input, knownDim)
		if err != nil {
			return nil, nil, err
		}
		dim := knownDim
		for i := range docs {
			dim = max(dim, docs[i].Dim)
		}
		if m.Current != nil && dim == knownDim || len(docs) == 0 {
			if m.Current != nil {
				err = m.Current.Model.Check(o.Model)
			}
			return m, docs, err
		}
		if m, err = s.c.beginGeneration(ctx, m, dim, o); err == nil && m.ID != s.id {
			err = s.removedError()
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("%w: %q does not get the dimension of the vectors", collection.ErrUnreachable, s.name)
}

// splitByShard splits documents by shard, with their indices in the request. Documents without an id get a random one.
func (s *shardedCollection) splitByShard(m *Map, docs []collection.DocumentInput,
	o collection.UpdateOptions) (requests map[int]*changeRequest, indices map[int][]int, err error) {
	requests, indices = map[int]*changeRequest{}, map[int][]int{}
	for i := range docs {
		d := &docs[i]
		if d.ID == "" { // not its number: after a build that ends meanwhile, another document may have that id
			d.ID = randomID()
		}
		if _, err := vectors.PassageFromPayload(d.ID, d.Metadata); err != nil {
			return nil, nil, &collection.DocumentError{Document: i, ID: d.ID, Token: -1, Err: err}
		}
		shard := m.shardOf(d.ID)
		p := requests[shard]
		if p == nil {
			p = &changeRequest{Replace: o.Replace, Model: o.Model}
			requests[shard] = p
		}
		p.Documents = append(p.Documents, wireDocument{*d, d.Metadata, d.Vectors})
		indices[shard] = append(indices[shard], i)
	}
	return requests, indices, nil
}

// toRequestIndex changes the index of a document in an error from that among the documents of a shard to that in the
// request.
func toRequestIndex(err error, indices []int) error {
	e, ok := errors.AsType[*collection.DocumentError](err)
	if !ok || e.Document < 0 || e.Document >= len(indices) || errors.Is(err, storage.ErrOutcomeUnknown) {
		return err
	}
	return &collection.DocumentError{Document: indices[e.Document], ID: e.ID, Token: e.Token, Err: e.Err}
}

// checkUpdate asks shards whether they would refuse documents, so that no shard stores its documents if another one
// will refuse. Vectors are left out, and metadata is sent only if it marks a passage.
func (s *shardedCollection) checkUpdate(ctx context.Context, requests map[int]*changeRequest,
	indices map[int][]int) error {
	trimmed := map[int]*changeRequest{}
	for shard, p := range requests {
		l := *p
		l.Documents = slices.Clone(p.Documents)
		for i := range l.Documents {
			d := &l.Documents[i]
			d.Vectors = nil
			d.KeepMetadata = d.KeepMetadata && d.Metadata == nil
			if passage, _ := vectors.PassageFromPayload(d.ID, d.Metadata); passage == nil {
				d.Metadata = nil
			}
		}
		trimmed[shard] = &l
	}
	_, errs := forEachShard(sortedKeys(trimmed), func(shard int) (map[int]*answerHead, error) {
		_, found, err := readAllShards[answerHead](ctx, s, "check", oneShard(shard), trimmed[shard])
		return found, toRequestIndex(err, indices[shard])
	})
	return worstError(errs)
}

// changeSelected makes a change of the documents of a selection.
func (s *shardedCollection) changeSelected(ctx context.Context, op string, sel collection.Selection,
	in changeRequest) (index.Affected, error) {
	var n index.Affected
	if err := sel.CheckExactlyOne(); err != nil {
		return n, err
	}
	m, err := s.nonEmptyMap(ctx)
	if err == nil {
		err = checkWhere(sel.Where)
	}
	if err == nil {
		err = s.checkFields(ctx, sel.Where)
	}
	if err != nil {
		return n, err
	}
	split, requests := newSplitSelection(&sel, m.Shards), map[int]*changeRequest{}
	for _, shard := range split.shardNumbers() {
		request := in
		request.Only = split.forShards(shard)
		requests[shard] = &request
	}
	done, errs := s.changeShards(ctx, op, requests)
	for _, result := range done {
		n.Add(result.Affected)
	}
	for shard, err := range errs {
		if errors.Is(err, collection.ErrEmpty) { // only the shard is empty, not the collection
			delete(errs, shard)
		}
	}
	if err = worstError(errs); err != nil && n != (index.Affected{}) {
		err = &collection.PartialError{Done: n, Err: err}
	}
	if err != nil {
		return index.Affected{}, err
	}
	return n, nil
}

// Delete implements [collection.Collection].
func (s *shardedCollection) Delete(ctx context.Context, sel collection.Selection) (index.Affected, error) {
	return s.changeSelected(ctx, "delete", sel, changeRequest{})
}

// UpdateMetadata implements [collection.Collection].
func (s *shardedCollection) UpdateMetadata(ctx context.Context, sel collection.Selection,
	set map[string]json.RawMessage) (index.Affected, error) {
	if err := collection.CheckFields(set); err != nil {
		return index.Affected{}, err
	}
	fields := make(map[string][]byte, len(set)) // bytes, because JSON would change the form of raw values
	for key, value := range set {
		fields[key] = value
	}
	return s.changeSelected(ctx, "metadata", sel, changeRequest{Set: fields})
}
