package search

import (
	"slices"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// scoreWith splits an ascending list of documents into jobs of about limit tokens and runs a kernel,
// which reads these arrays, over them. It returns the scores in dst, in the same order, and the
// number of tokens. It overwrites docs, see splitJobs.
func (r *run) scoreWith(
	dst []topk.Scored, docs []uint32, limit int, arrays storage.Arrays, k kernel,
) (scored []topk.Scored, tokens int64, err error) {
	if err := r.prefetch(docs, arrays); err != nil {
		return nil, 0, err
	}
	tokens, pieces := r.splitJobs(docs, limit, k.maxima != nil)
	n := r.query.Len()
	r.maxima = slices.Grow(r.maxima[:0], pieces*n)[:pieces*n]
	r.scores = slices.Grow(r.scores[:0], len(docs))[:len(docs)]
	scored = slices.Grow(dst[:0], len(docs))[:len(docs)]
	runJob := func(i int) error {
		j := &r.jobs[i]
		ch, err := j.loadChunk(docs, arrays)
		if err != nil {
			return err
		}
		if j.isPiece() {
			k.maxima(j.maximaOf(r.maxima, n), ch, j.tokenRange[0], j.tokenRange[1])
			return nil
		}
		k.docs(r.scores[j.first:j.end], ch, docs[j.first:j.end])
		first, _ := j.shard.snap.ChunkDocs(j.chunk)
		first += j.shard.base
		for d := j.first; d < j.end; d++ {
			scored[d] = topk.Scored{Doc: first + docs[d], Score: r.scores[d]}
		}
		return nil
	}
	// With several shards, an error names the file of its shard.
	if runUnguarded := runJob; len(r.call.coll.shards) > 1 {
		runJob = func(i int) (err error) {
			defer r.jobs[i].shard.guardRead(r.call, &err)()
			return runUnguarded(i)
		}
	}
	if k.rows {
		if err := r.fillJobRows(docs, arrays); err != nil {
			return nil, 0, err
		}
	}
	err = r.forEach(len(r.jobs), runJob)
	if pieces > 0 && err == nil {
		r.mergeMaxima(scored, docs, k, n)
	}
	return scored, tokens, err
}

// prefetch requests, for each shard at once, all that a stage reads of an ascending list of
// documents.
func (r *run) prefetch(docs []uint32, arrays storage.Arrays) error {
	for i := range r.group {
		sh, shardDocs := &r.group[i], docs
		if i+1 < len(r.group) {
			end, _ := slices.BinarySearch(docs, r.group[i+1].base)
			shardDocs, docs = docs[:end], docs[end:]
		}
		if sh.base > 0 {
			r.shardDocs = append(r.shardDocs[:0], shardDocs...)
			for i := range r.shardDocs {
				r.shardDocs[i] -= sh.base
			}
			shardDocs = r.shardDocs
		}
		if err := sh.snap.Prefetch(r.ctx, arrays, shardDocs); err != nil {
			return err
		}
	}
	return nil
}

// fillJobRows computes the rows of S that the jobs need.
func (r *run) fillJobRows(docs []uint32, arrays storage.Arrays) error {
	return r.fillRows(len(r.jobs), func(i int) (err error) {
		j := &r.jobs[i]
		defer j.shard.guardRead(r.call, &err)()
		ch, err := j.loadChunk(docs, arrays)
		if err != nil {
			return err
		}
		if j.isPiece() {
			r.query.RequireRowsOfTokens(ch, j.tokenRange[0], j.tokenRange[1])
		} else {
			r.query.RequireRows(ch, docs[j.first:j.end])
		}
		return nil
	})
}

// fillRows computes the rows of S that n calls of require request, unless all rows are computed
// already.
func (r *run) fillRows(n int, require func(i int) error) error {
	if r.table.complete {
		return nil
	}
	if err := r.forEach(n, require); err != nil {
		return err
	}
	k := r.call.coll.sharedCodec().Centroids.K
	return r.forEach(parallel.Blocks(k, fillJob), func(i int) error {
		lo, hi := parallel.Block(i, k, fillJob)
		r.query.ComputeRequiredRows(lo, hi)
		return nil
	})
}

// mergeMaxima merges the maxima of the pieces of each long document, n for each piece, and scores it.
func (r *run) mergeMaxima(scored []topk.Scored, docs []uint32, k kernel, n int) {
	merged := map[int][]float64{} // by index in docs
	for i := range r.jobs {
		j := &r.jobs[i]
		if !j.isPiece() {
			continue
		}
		maxima := j.maximaOf(r.maxima, n)
		if documentMaxima := merged[j.first]; documentMaxima != nil {
			kernels.MergeMaxima(documentMaxima, maxima)
			continue
		}
		merged[j.first] = maxima
		first, _ := j.shard.snap.ChunkDocs(j.chunk)
		scored[j.first].Doc = j.shard.base + first + docs[j.first]
	}
	for d, maxima := range merged {
		scored[d].Score = k.total(maxima)
	}
}
