package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/plaid-ir/plaid/codec"
	"github.com/plaid-ir/plaid/kernels"
)

// trainingStudy compares ways to train centroids: k-means over all vectors at once, in two
// levels, and within the vectors of one piece of text. Each 50th document is kept from them
// all, and the indexes that are searched have all documents.
func trainingStudy(f *flag.FlagSet) measuring {
	ks := numbers(f, "k", 64, "numbers of centroids", 4096, 16384)
	return func(ctx context.Context, args []string, stdout, _ io.Writer) (err error) {
		s := &training{dir: args[0]}
		if s.temp, err = os.MkdirTemp("", "training"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(s.temp)) }()
		if err := s.open(ctx); err != nil {
			return err
		}
		ids, err := s.docs.pieces(ctx, args[1], args[2])
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%d vectors to train on, %d held out\n\n", len(s.rows), len(s.heldRows))
		fmt.Fprint(stdout, "| K | centroids | groups | processor s | products | similarity | RMSE | in own group | RMSE of 2 bits | longest list | longest 1 % | recall@100 | scored exactly | recall, 4 probes | candidates | entries |\n",
			"|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
		for _, k := range *ks {
			if err := s.plain(ctx, stdout, k); err != nil {
				return err
			}
			if err := s.levels(ctx, stdout, k); err != nil {
				return err
			}
			for _, power := range []float64{1, 0.5} {
				if err := s.byPiece(ctx, stdout, k, ids, power); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

type training struct {
	dir, temp      string
	docs           *matrix
	rows, heldRows []uint32  // of docs
	x, held        []float32 // the same
	backend        kernels.Backend
}

func (s *training) open(ctx context.Context) (err error) {
	if s.backend, err = kernels.Select(""); err != nil {
		return err
	}
	src, err := openDocs(ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if s.docs, err = readMatrix(ctx, src, 0); err != nil {
		return err
	}
	for i := range s.docs.ids {
		x, rows := &s.x, &s.rows
		if i%50 == 25 {
			x, rows = &s.held, &s.heldRows
		}
		*x = append(*x, s.docs.rows(i)...)
		for row := s.docs.offsets[i]; row < s.docs.offsets[i+1]; row++ {
			*rows = append(*rows, row)
		}
	}
	return nil
}

func (s *training) plain(ctx context.Context, w io.Writer, k int) error {
	start, took := processorTime(), time.Duration(0)
	q, r, err := codec.Train(ctx, s.x, s.docs.dim, codec.TrainOptions{K: k, Iterations: trainingRounds, Seed: 1, Backend: s.backend,
		Progress: func(int64, int64) { took = processorTime() - start }}) // the last one before the levels are fitted
	if err != nil {
		return err
	}
	return s.line(ctx, w, &trained{name: "plain", k: r.K, groups: 1, took: took, products: int64(r.Iterations) * int64(r.Points) * int64(r.K),
		codec: q, owner: make([]int, r.K), home: make([]int, len(s.heldRows))})
}

// levels parts the vectors into √K groups, and each into its share of centroids.
func (s *training) levels(ctx context.Context, w io.Writer, k int) error {
	start := processorTime()
	c := newClusters(s.x, s.docs.dim, s.backend)
	all := make([]uint32, len(s.rows))
	for i := range all {
		all[i] = uint32(i)
	}
	middles, groups, err := c.split(ctx, all, int(math.Sqrt(float64(k))))
	if err != nil {
		return err
	}
	sizes := make([]float64, len(groups))
	for g, rows := range groups {
		sizes[g] = float64(len(rows))
	}
	if err := c.within(ctx, groups, shares(sizes, k)); err != nil {
		return err
	}
	took := processorTime() - start
	codes := make([]uint32, len(s.heldRows))
	if err := nearestOf(ctx, s.backend, codes, nil, middles, s.held, s.docs.dim, 0); err != nil {
		return err
	}
	home := make([]int, len(codes))
	for i, g := range codes {
		home[i] = int(g)
	}
	return s.fit(ctx, w, c, &trained{name: "two levels", groups: len(groups), took: took, home: home})
}

// fit measures what was trained within groups, as it is and with a round of k-means over all
// centroids after it.
func (s *training) fit(ctx context.Context, w io.Writer, c *clusters, t *trained) error {
	if err := s.fitted(ctx, w, c, t); err != nil {
		return err
	}
	start := processorTime()
	if err := c.round(ctx); err != nil {
		return err
	}
	t.name, t.took = "… and a round over all", t.took+processorTime()-start
	return s.fitted(ctx, w, c, t)
}

func (s *training) fitted(ctx context.Context, w io.Writer, c *clusters, t *trained) error {
	q, r, err := c.train(ctx)
	if err != nil {
		return err
	}
	t.k, t.codec, t.owner, t.products = r.K, q, c.owner, c.products.Load()
	return s.line(ctx, w, t)
}
