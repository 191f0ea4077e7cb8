package kerneltest

import (
	"context"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/plaid-ir/plaid/internal/floats"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// Device is a fake device in the process, which scores with the oracle. The zero value
// is ready to use.
type Device struct {
	// FailWith, unless it is nil, is called before each search and each call of Nearest, which return its error.
	FailWith func() error
	// Searched counts the queries that were answered.
	Searched atomic.Int64
}

const deviceName = "oracle:0"

// Info describes the device.
func (d *Device) Info() kernels.DeviceInfo {
	return kernels.DeviceInfo{Name: deviceName, Model: "float64 oracle"}
}

// Attach keeps nothing.
func (d *Device) Attach(context.Context, kernels.Corpus, kernels.AttachOptions) (kernels.Attachment, error) {
	return attached{d}, d.failure()
}

// Builder finds nearest centroids with cpu.
func (d *Device) Builder(cpu kernels.Backend) kernels.Builder { return deviceBuilder{cpu, d} }

// Close does nothing.
func (d *Device) Close() error { return nil }

// failure returns the error of FailWith.
func (d *Device) failure() error {
	if d.FailWith == nil {
		return nil
	}
	return d.FailWith()
}

// deviceBuilder builds with the kernels of the processor, and fails with the device.
type deviceBuilder struct {
	kernels.Backend
	d *Device
}

func (b deviceBuilder) Nearest(
	ctx context.Context, codes []uint32, scores []float32, centroids, x []float32, dim int,
) error {
	if err := b.d.failure(); err != nil {
		return err
	}
	return b.Backend.Nearest(ctx, codes, scores, centroids, x, dim)
}

func (b deviceBuilder) Prepare(context.Context, []float32, int) (kernels.Backend, func(), error) {
	return b, func() {}, nil
}

// attached is a corpus on the device.
type attached struct{ d *Device }

func (a attached) Plan() kernels.MemoryPlan { return kernels.MemoryPlan{Resident: true, Pieces: 1} }
func (a attached) Close() error             { return nil }

func (a attached) Search(
	ctx context.Context, c kernels.Corpus, qs []kernels.DeviceQuery,
) ([]kernels.DeviceAnswer, error) {
	answers := make([]kernels.DeviceAnswer, len(qs))
	for i := range qs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := a.d.failure(); err != nil {
			return nil, err
		}
		if err := a.search(c, &qs[i], &answers[i]); err != nil {
			return nil, err
		}
		a.d.Searched.Add(1)
	}
	return answers, nil
}

// search scores all allowed documents with the oracle, and returns the best, of probed
// documents if these are enough.
func (a attached) search(c kernels.Corpus, q *kernels.DeviceQuery, to *kernels.DeviceAnswer) error {
	// 1. Score the documents.
	allowed, _ := c.LiveSet()
	if q.Allowed != nil {
		allowed = q.Allowed
	}
	probed := probedCentroids(c.Codec(), q)
	type scored struct {
		doc    uint32
		score  float64
		probed bool // found by a probe
	}
	var documents []scored
	candidates := 0
	st := &to.Stats
	st.Device, st.Searches, st.Launches = deviceName, 1, 1
	for i := range c.Chunks() {
		ch, err := c.Load(i)
		if err != nil {
			return err
		}
		first, _ := c.ChunkDocs(i)
		for d := range ch.Docs() {
			doc := first + uint32(d)
			if allowed[doc/64]>>(doc%64)&1 == 0 || q.Docs != nil && !slices.Contains(q.Docs, doc) {
				continue
			}
			s := scored{doc: doc}
			s.score, _ = kernels.OracleMaxSim(c.Codec(), q.Vectors, q.Weights, ch, d)
			for t := ch.Offsets[d]; t < ch.Offsets[d+1]; t++ {
				s.probed = s.probed || probed[ch.Code(int(t))]
				st.ScanTokens++
			}
			if s.probed {
				candidates++
			}
			documents = append(documents, s)
		}
	}
	// 2. Leave out documents that no probe found, unless there are too few others.
	if q.Probes > 0 {
		if st.Candidates = int64(candidates); candidates < q.K {
			st.Widened++
		} else {
			documents = slices.DeleteFunc(documents, func(s scored) bool { return !s.probed })
		}
	}
	// 3. Sort by the float32 scores that are returned: on ties the first document wins, as with
	// any device.
	sort.SliceStable(documents, func(i, j int) bool {
		return float32(documents[i].score) > float32(documents[j].score)
	})
	for _, s := range documents[:min(q.K, len(documents))] {
		to.Docs, to.Scores = append(to.Docs, s.doc), append(to.Scores, float32(s.score))
	}
	return nil
}

// probedCentroids returns the q.Probes best centroids of each query token.
func probedCentroids(c *kernels.Codec, q *kernels.DeviceQuery) map[uint32]bool {
	probed := map[uint32]bool{}
	dim := c.Dim()
	rows := make([]float32, c.Centroids.K*dim)
	c.Centroids.Rows(rows, 0, c.Centroids.K)
	for t := range len(q.Vectors) / dim {
		if q.Weights != nil && q.Weights[t] <= 0 {
			continue
		}
		order := make([]uint32, c.Centroids.K)
		score := make([]float64, c.Centroids.K)
		for i := range order {
			order[i] = uint32(i)
			for j, v := range q.Vectors[t*dim : (t+1)*dim] {
				score[i] += float64(v) * float64(rows[i*dim+j])
			}
		}
		sort.SliceStable(order, func(i, j int) bool { return score[order[i]] > score[order[j]] })
		for _, i := range order[:min(q.Probes, len(order))] {
			probed[i] = true
		}
	}
	return probed
}

// EncodeHalves implements that method of [transformer.Model] for a model that has only Encode,
// with vectors of dim dimensions.
func EncodeHalves(
	ctx context.Context, encode func(context.Context, []float32, transformer.Batch) error, dim int,
	dst []byte, b transformer.Batch, kept []int32,
) error {
	if err := b.CheckKept(kept, len(dst), dim); err != nil {
		return err
	}
	vectors := make([]float32, len(b.IDs)*dim)
	if err := encode(ctx, vectors, b); err != nil {
		return err
	}
	for i, id := range kept {
		floats.EncodeFloat16(dst[2*dim*i:], vectors[int(id)*dim:int(id+1)*dim])
	}
	return nil
}
