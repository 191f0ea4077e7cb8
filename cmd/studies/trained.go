package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search/quality"
)

// trained is what a line of the table is made of.
type trained struct {
	name     string
	k        int
	groups   int
	took     time.Duration
	products int64
	codec    *codec.Quantizer
	owner    []int // the group of each centroid
	home     []int // and of each row that was held out
}

// line measures what was trained, and prints it.
func (s *training) line(ctx context.Context, w io.Writer, t *trained) error {
	codes, scores := make([]uint32, len(s.heldRows)), make([]float32, len(s.heldRows))
	if err := nearestOf(ctx, s.backend, codes, scores, t.codec.Centroids(), s.held, s.docs.dim, 0); err != nil {
		return err
	}
	var similarity, error2, own float64
	for i, code := range codes {
		c := t.codec.Centroids()[int(code)*s.docs.dim:][:s.docs.dim]
		similarity += float64(scores[i])
		error2 += 1 - 2*float64(scores[i]) + product(c, c)
		if t.owner[code] == t.home[i] {
			own++
		}
	}
	n := float64(len(codes))
	path := filepath.Join(s.temp, "index.plaid")
	src, err := openDocs(ctx, s.dir)
	if err != nil {
		return err
	}
	built, err := index.Build(ctx, path, src, &index.BuildOptions{Codec: t.codec, Force: true})
	if err := errors.Join(err, src.Close()); err != nil {
		return err
	}
	o := growthOptions{vectors: s.dir, k: 100, queries: 100, settings: []quality.Setting{{Effort: 1}, {Probes: 4}}}
	found, err := o.search(ctx, path)
	if err != nil {
		return err
	}
	longest, hundredth, err := listLengths(ctx, path)
	if err != nil {
		return err
	}
	p, few := found[0].point, found[1].point
	fmt.Fprintf(w, "| %d | %s | %d | %.1f | %.2f G | %.4f | %.4f | %.4f | %.4f | %d | %d | %.4f | %.0f | %.4f | %.0f | %.0f |\n", t.k, t.name, t.groups,
		t.took.Seconds(), float64(t.products)/1e9, similarity/n, math.Sqrt(error2/n), own/n, built.RMSE, longest, hundredth,
		p.Recall, each(p, p.Stats.ExactDocs), few.Recall, each(few, few.Stats.Candidates), each(few, few.Stats.Postings))
	return nil
}

func each(p quality.Point, sum int64) float64 { return float64(sum) / float64(p.Stats.Queries) }

// listLengths are documents in the longest list of an index, and in that which one in a
// hundred is longer than.
func listLengths(ctx context.Context, path string) (longest, hundredth uint64, err error) {
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	snap, err := ix.Snapshot()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	lengths := make([]uint64, snap.Header().Centroids)
	for c := range lengths {
		for segment := range snap.Segments() {
			list, err := snap.Postings(segment, uint32(c))
			if err != nil {
				return 0, 0, err
			}
			docs := roaring.New()
			if len(list) > 0 {
				if _, err := docs.FromBuffer(list); err != nil {
					return 0, 0, err
				}
			}
			lengths[c] += docs.GetCardinality()
		}
	}
	slices.Sort(lengths)
	return lengths[len(lengths)-1], lengths[len(lengths)-1-len(lengths)/100], nil
}

// train makes the codec of the clusters: k-means of codec.Train is told them as its only
// round, and takes their means for centroids.
func (c *clusters) train(ctx context.Context) (*codec.Quantizer, codec.TrainReport, error) {
	n := len(c.codes)
	return codec.Train(ctx, c.x, c.dim, codec.TrainOptions{
		K: len(c.owner), Iterations: 1, MaxPointsPerCentroid: n, Seed: 1, Backend: clustered{c.backend, c},
	})
}

// clustered is a backend that knows the clusters of the rows of a sample.
type clustered struct {
	kernels.Backend
	of *clusters
}

func (b clustered) Nearest(ctx context.Context, codes []uint32, scores, centroids, x []float32, dim int) error {
	at := (cap(b.of.x) - cap(x)) / dim // if x is a part of the sample
	if at < 0 || at*dim >= len(b.of.x) || &b.of.x[at*dim] != &x[0] {
		return b.Backend.Nearest(ctx, codes, scores, centroids, x, dim)
	}
	copy(codes, b.of.codes[at:])
	copy(scores, b.of.scores[at:])
	return nil
}
