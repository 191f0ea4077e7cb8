package search

import (
	"slices"

	"github.com/plaid-ir/plaid/internal/parallel"
	"github.com/plaid-ir/plaid/internal/topk"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/storage"
)

// score splits an ascending list of documents, which it spoils, into jobs and runs
// a kernel over them. It returns their scores in dst, in the same order, and how
// many tokens they have.
func (r *run) score(dst []topk.Scored, docs []uint32, limit int, what storage.Arrays, k kernel) (scored []topk.Scored, tokens int64, err error) {
	if err := r.prefetch(docs, what); err != nil {
		return nil, 0, err
	}
	tokens, parts := r.split(docs, limit, k.maxima != nil)
	n := r.query.Len()
	r.maxima = slices.Grow(r.maxima[:0], parts*n)[:parts*n]
	r.scores = slices.Grow(r.scores[:0], len(docs))[:len(docs)]
	scored = slices.Grow(dst[:0], len(docs))[:len(docs)]
	do := func(i int) error {
		j := &r.jobs[i]
		ch, err := j.arrays(docs, what)
		if err != nil {
			return err
		}
		if j.cut[0] < j.cut[1] {
			k.maxima(r.maxima[j.slot*n:(j.slot+1)*n], ch, j.cut[0], j.cut[1])
			return nil
		}
		k.docs(r.scores[j.lo:j.hi], ch, docs[j.lo:j.hi])
		first, _ := j.part.snap.ChunkDocs(j.chunk)
		first += j.part.base
		for d := j.lo; d < j.hi; d++ {
			scored[d] = topk.Scored{Doc: first + docs[d], Score: r.scores[d]}
		}
		return nil
	}
	if one := do; len(r.call.coll.parts) > 1 {
		do = func(i int) (err error) {
			defer r.jobs[i].part.guard(r.call, &err)()
			return one(i)
		}
	}
	if k.rows {
		if err := r.fill(docs, what); err != nil {
			return nil, 0, err
		}
	}
	err = r.forEach(len(r.jobs), do)
	if parts > 0 && err == nil {
		r.join(scored, docs, k, n)
	}
	return scored, tokens, err
}

// prefetch asks at once for all that a stage reads of an ascending list of documents.
func (r *run) prefetch(docs []uint32, what storage.Arrays) error {
	for i := range r.group {
		p, own := &r.group[i], docs
		if i+1 < len(r.group) {
			end, _ := slices.BinarySearch(docs, r.group[i+1].base)
			own, docs = docs[:end], docs[end:]
		}
		if p.base > 0 {
			r.own = append(r.own[:0], own...)
			for i := range r.own {
				r.own[i] -= p.base
			}
			own = r.own
		}
		if err := p.snap.Prefetch(r.ctx, what, own); err != nil {
			return err
		}
	}
	return nil
}

// fill computes the rows of S that the jobs need.
func (r *run) fill(docs []uint32, what storage.Arrays) error {
	return r.fillRows(len(r.jobs), func(i int) (err error) {
		j := &r.jobs[i]
		defer j.part.guard(r.call, &err)()
		ch, err := j.arrays(docs, what)
		if err != nil {
			return err
		}
		if j.cut[0] < j.cut[1] {
			r.query.RequireTokens(ch, j.cut[0], j.cut[1])
		} else {
			r.query.Require(ch, docs[j.lo:j.hi])
		}
		return nil
	})
}

// fillRows computes the rows of S that n calls of require ask for, unless all are there.
func (r *run) fillRows(n int, require func(i int) error) error {
	if r.table.all {
		return nil
	}
	if err := r.forEach(n, require); err != nil {
		return err
	}
	k := r.call.coll.codec().Centroids.K
	return r.forEach(parallel.Blocks(k, fillJob), func(i int) error {
		lo, hi := parallel.Block(i, k, fillJob)
		r.query.Fill(lo, hi)
		return nil
	})
}

// join makes scores of the maxima of parts.
func (r *run) join(scored []topk.Scored, docs []uint32, k kernel, n int) {
	whole := map[int][]float64{} // by place in the list
	for _, j := range r.jobs {
		if j.cut[0] == j.cut[1] {
			continue
		}
		maxima := r.maxima[j.slot*n : (j.slot+1)*n]
		if so := whole[j.lo]; so != nil {
			kernels.MergeMaxima(so, maxima)
			continue
		}
		whole[j.lo] = maxima
		first, _ := j.part.snap.ChunkDocs(j.chunk)
		scored[j.lo].Doc = j.part.base + first + docs[j.lo]
	}
	for d, maxima := range whole {
		scored[d].Score = k.total(maxima)
	}
}
