package dense

import (
	"fmt"
	"math"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
	"github.com/plaid-ir/plaid/kernels/maxsim"
)

// Sizes of the blocks of dense_grad_*; see src/dense/grad.cuh.
const (
	gradTokens = 32    // query tokens of a group
	gradWarps  = 8     // warps of a block
	gradShared = 50336 // kPullShared, in bytes
	gradBlocks = 264   // minimum of blocks for documents, below which blocks get fewer rows

	gradParts = 16 * 32 * gradWarps // bytes: 16 for each thread, for partial sums of query rows
)

var gradKernels = [...]string{
	0: "dense/dense_grad_any", f32: "dense/dense_grad_f32", f16: "dense/dense_grad_f16", bf16: "dense/dense_grad_bf16",
	i8: "dense/dense_grad_i8", e4m3: "dense/dense_grad_e4m3", split: "dense/dense_grad_split",
}

// kernel returns the kernel that reads the rows of a side four values at a time, or the one for
// rows that are not aligned to that.
func (s *denseGradSide) kernel() string {
	four := driver.Ptr(4 * [...]int{f32: 4, f16: 2, bf16: 2, i8: 1, e4m3: 1, split: 2}[s.format])
	if s.zeros != 0 || s.rows%four != 0 || driver.Ptr(s.rowBytes)%four != 0 {
		return gradKernels[0]
	}
	return gradKernels[s.format]
}

// takesFour reports whether the gradient of a side is written four values at a time.
func (s *denseGradSide) takesFour(dim uint32) bool {
	return dim%4 == 0 && s.out%driver.Ptr(4*maxsim.Type(s.outType).Size()) == 0
}

// launchGradients launches the kernels for the gradients of the sides whose out is set: a single kernel if
// it can read the rows of both. It sets the fields of p that are derived from others. pairs is the
// number of pairs of the call.
func launchGradients(rt *runtime.Runtime, p *denseGradParams, pairs int) error {
	p.groups = runtime.CeilDiv(p.q.longest, gradTokens)
	entries := uint64(p.groups) // upper bound of the groups that a document is scored with
	switch PairKind(p.kind) {
	case PairsAll:
		entries *= uint64(p.q.items)
	case PairsListed:
		entries *= uint64(pairs)
	}
	for _, s := range []*denseGradSide{&p.q, &p.d} {
		if s.whole = 0; s.takesFour(p.dim) {
			s.whole = 1
		}
	}
	docs, queries := p.blocks(pairs)
	if entries > math.MaxInt32/gradTokens || docs+queries > math.MaxInt32 {
		return fmt.Errorf("%w: gradients of %d documents by %d rows of queries", driver.ErrUnsupported, p.d.items,
			p.q.nRows)
	}
	shared := 0
	if p.parts > 1 {
		shared = gradParts
	}
	if docs > 0 {
		shared = gradShared + 8*128*int(runtime.CeilDiv(p.dim, 128))
	}
	p.docBlocks = uint32(docs)
	if docs > 0 && queries > 0 && p.q.kernel() != p.d.kernel() {
		docsOnly := *p
		if err := runtime.Launch(rt, p.q.kernel(), docs, 1, 1, 32*gradWarps, shared, &docsOnly); err != nil {
			return err
		}
		p.docBlocks, docs, shared = 0, 0, gradParts
	}
	kernel := p.d.kernel()
	if docs > 0 {
		kernel = p.q.kernel()
	}
	return runtime.Launch(rt, kernel, docs+queries, 1, 1, 32*gradWarps, shared, p)
}

// blocks returns the numbers of blocks for documents and for queries, and sets tiles, parts and rows. If
// there are few query rows with many pairs, several warps share a row. This depends on shapes only,
// so that the same call always gives the same bits.
func (p *denseGradParams) blocks(pairs int) (docs, queries int) {
	p.tiles, p.parts = 1, 1
	if p.d.out != 0 && p.d.nRows > 0 {
		docStride := p.d.longest
		if p.d.offsets == 0 {
			docStride = p.d.stride
		}
		for p.rows = 128; ; p.rows /= 2 {
			p.tiles = max(runtime.CeilDiv(docStride, p.rows), 1)
			if docs = int(max(p.d.items, 1)) * int(p.tiles); docs >= gradBlocks || p.rows == 32 {
				break
			}
		}
	}
	if p.q.out != 0 && p.q.nRows > 0 {
		n := pairs / int(max(p.q.items, 1)) // of a query
		const fewRows, minPairsPerWarp = 4096, 64
		for p.parts < gradWarps && p.q.nRows*uint64(p.parts) < fewRows && n >= minPairsPerWarp*int(p.parts) {
			p.parts *= 2
		}
		queries = int(runtime.CeilDiv(p.q.nRows*uint64(p.parts), gradWarps))
	}
	return docs, queries
}
