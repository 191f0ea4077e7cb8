package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
)

// nearestStudy is what a build would lose that looks for the nearest centroid of a token in
// some groups of centroids only, those whose own centroids are nearest.
func nearestStudy(f *flag.FlagSet) measuring {
	groups := numbers(f, "groups", 2, "how many groups of centroids", 256, 1024)
	probes := numbers(f, "probes", 1, "how many groups are looked into", 8, 16, 32, 64)
	tokens := f.Int("tokens", 20000, "how many tokens of documents, drawn evenly")
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
		snap, done, err := openedIndex(ctx, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done()) }()
		s := &nearest{dim: snap.Dim(), centroids: snap.Quantizer().Centroids()}
		if err := s.sample(ctx, args[1], *tokens, snap.State().LiveTokens); err != nil {
			return err
		}
		fmt.Fprintln(stdout, "| centroids | groups | looked into | nearest found | squared error | products |\n|--:|--:|--:|--:|--:|--:|")
		slices.Sort(*probes)
		for _, g := range *groups {
			if err := s.measure(ctx, stdout, g, *probes); err != nil {
				return err
			}
		}
		return nil
	}
}

type nearest struct {
	dim          int
	centroids, x []float32
	codes        []uint32 // the nearest centroid of each row of x
	scores       []float32
	backend      kernels.Backend
}

// sample draws rows of documents, and finds their centroids among all.
func (s *nearest) sample(ctx context.Context, dir string, n int, of uint64) (err error) {
	src, err := openDocs(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	every, at := max(int(of)/max(n, 1), 1), 0
	for d, err := range src.Docs(ctx, 0, src.Len()) {
		if err != nil {
			return err
		}
		for row := range slices.Chunk(d.Tokens, s.dim) {
			if at++; at%every == 0 {
				s.x = append(s.x, row...)
			}
		}
	}
	codec.NormalizeWide(s.x, s.dim, 0)
	if s.backend, err = kernels.Select(""); err != nil {
		return err
	}
	s.codes, s.scores = make([]uint32, len(s.x)/s.dim), make([]float32, len(s.x)/s.dim)
	return s.backend.Nearest(ctx, s.codes, s.scores, s.centroids, s.x, s.dim)
}

// measure prints a line for each number of groups that is looked into.
func (s *nearest) measure(ctx context.Context, w io.Writer, groups int, probes []int) error {
	coarse, _, err := codec.Train(ctx, s.centroids, s.dim, codec.TrainOptions{K: groups, Iterations: 10, Seed: 1})
	if err != nil {
		return err
	}
	middles, k := coarse.Centroids(), len(s.centroids)/s.dim
	of := make([]uint32, k)
	if err := s.backend.Nearest(ctx, of, make([]float32, k), middles, s.centroids, s.dim); err != nil {
		return err
	}
	members := make([][]uint32, groups)
	for c, g := range of {
		members[g] = append(members[g], uint32(c))
	}
	found, rows, lost := make([]int, len(probes)), make([]int, len(probes)), make([]float64, len(probes))
	order, near := make([]uint32, groups), make([]float64, groups)
	var error2 float64
	for i, code := range s.codes {
		if err := ctx.Err(); err != nil {
			return err
		}
		x := s.x[i*s.dim:][:s.dim]
		for g := range near {
			order[g], near[g] = uint32(g), product(x, middles[g*s.dim:])
		}
		slices.SortFunc(order, func(a, b uint32) int { return cmp.Compare(near[b], near[a]) })
		best, seen, p := math.Inf(-1), groups, 0
		for n, g := range order[:min(probes[len(probes)-1], groups)] {
			for _, c := range members[g] {
				best = max(best, product(x, s.centroids[int(c)*s.dim:]))
			}
			if seen += len(members[g]); n+1 == probes[p] {
				exact := product(x, s.centroids[int(code)*s.dim:])
				if rows[p] += seen; best >= exact-1e-6 {
					found[p]++
				}
				lost[p] += max(exact-best, 0)
				p++
			}
		}
		error2 += 1 - float64(s.scores[i])
	}
	n := float64(len(s.codes))
	for p, m := range probes {
		fmt.Fprintf(w, "| %d | %d | %d | %.4f | +%.2f %% | %.1f %% |\n", k, groups, m, float64(found[p])/n, 100*lost[p]/error2, 100*float64(rows[p])/n/float64(k))
	}
	return nil
}

func product(x, y []float32) (sum float64) {
	for i, v := range x {
		sum += float64(v) * float64(y[i])
	}
	return sum
}
