package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/pool"
)

// The pictures are made up: of 32 × 32 cells, in patches that have a direction each, one of
// some thousands for all pages, with noise of the page and of the cell, and 6 tokens that are
// no cells. A question has 20 tokens: cells near one place of a page with noise, and 8 that
// all questions have.
const (
	pictureDim, pictureSide, pictureSpecial = 128, 32, 6
	picturePatches, pictureTopics           = 10, 4096
	questionCells, questionRest             = 12, 8
	questionNoise                           = 3.0
)

// pictures is a source of pages that are made when they are read.
type pictures struct {
	n      int
	topics []float32
}

func newPictures(n int) *pictures {
	r := rand.New(rand.NewPCG(1, 1))
	p := &pictures{n: n, topics: make([]float32, pictureTopics*pictureDim)}
	for i := range pictureTopics {
		gaussian(r, p.topics[i*pictureDim:(i+1)*pictureDim], nil, 1)
	}
	return p
}

// gaussian is a direction: center, and noise of about so much of its length.
func gaussian(r *rand.Rand, out, center []float32, noise float64) {
	var square float64
	for j := range out {
		x := noise * r.NormFloat64() / math.Sqrt(pictureDim)
		if center != nil {
			x += float64(center[j])
		}
		out[j] = float32(x)
		square += x * x
	}
	for j := range out {
		out[j] = float32(float64(out[j]) / math.Sqrt(square))
	}
}

func (p *pictures) Dim() int        { return pictureDim }
func (p *pictures) Len() int        { return p.n }
func (p *pictures) Rows(int) int    { return pictureSide*pictureSide + pictureSpecial }
func (p *pictures) ID(i int) string { return fmt.Sprint("page", i) }
func (p *pictures) Close() error    { return nil }

func (p *pictures) topic(i int) []float32 { return p.topics[i*pictureDim : (i+1)*pictureDim] }

// page makes the vectors of page i.
func (p *pictures) page(i int) []float32 {
	r := rand.New(rand.NewPCG(uint64(i), 2))
	out := make([]float32, p.Rows(i)*pictureDim)
	var at [picturePatches][2]float64
	patches := make([]float32, picturePatches*pictureDim)
	for k := range at {
		at[k] = [2]float64{r.Float64() * pictureSide, r.Float64() * pictureSide}
		gaussian(r, patches[k*pictureDim:(k+1)*pictureDim], p.topic(r.IntN(pictureTopics)), 0.5)
	}
	for c := range pictureSide * pictureSide {
		near, least := 0, math.Inf(1)
		for k := range at {
			if d := math.Hypot(at[k][0]-float64(c/pictureSide), at[k][1]-float64(c%pictureSide)); d < least {
				near, least = k, d
			}
		}
		gaussian(r, out[c*pictureDim:(c+1)*pictureDim], patches[near*pictureDim:(near+1)*pictureDim], 0.6)
	}
	for s := range pictureSpecial {
		c := pictureSide*pictureSide + s
		gaussian(r, out[c*pictureDim:(c+1)*pictureDim], p.topic(s), 0.2)
	}
	return out
}

// Docs implements [vectors.Source].
func (p *pictures) Docs(ctx context.Context, from, to int) iter.Seq2[vectors.Document, error] {
	return func(yield func(vectors.Document, error) bool) {
		for i := from; i < to; i++ {
			d := vectors.Document{ID: p.ID(i), Tokens: p.page(i), Payload: fmt.Appendf(nil, `{"image": "%d.png", "grid": [%d, %d]}`, i, pictureSide, pictureSide)}
			if !yield(d, ctx.Err()) || ctx.Err() != nil {
				return
			}
		}
	}
}

// question is one about a page.
func (p *pictures) question(n int) (q search.Query, page string) {
	r := rand.New(rand.NewPCG(uint64(n), 3))
	i := r.IntN(p.n)
	x, row, column := p.page(i), r.IntN(pictureSide-6), r.IntN(pictureSide-6)
	q = search.Query{Dim: pictureDim, Vectors: make([]float32, (questionCells+questionRest)*pictureDim)}
	for t := range questionCells + questionRest {
		center := p.topic(100 + t)
		if t < questionCells {
			c := (row+r.IntN(6))*pictureSide + column + r.IntN(6)
			center = x[c*pictureDim : (c+1)*pictureDim]
		}
		gaussian(r, q.Vectors[t*pictureDim:(t+1)*pictureDim], center, questionNoise)
	}
	return q, p.ID(i)
}

func picturesStudy(f *flag.FlagSet) measuring {
	pages := f.Int("pages", 2000, "how many pages")
	questions := f.Int("questions", 300, "how many questions")
	similar := f.Bool("similar", false, "also pool similar tokens wherever they are, which takes long")
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
		dir, err := os.MkdirTemp("", "plaid-pictures-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		p := newPictures(*pages)
		qs, truth := make([]search.Query, *questions), make([]string, *questions)
		for i := range qs {
			qs[i], truth[i] = p.question(i)
		}
		fmt.Fprintln(stdout, "| kept | MB | build CPU s | first is right | among 10 | CPU ms a question |")
		fmt.Fprintln(stdout, "|:--|--:|--:|--:|--:|--:|")
		var full *search.Engine
		for _, m := range []struct {
			name string
			o    index.BuildOptions
		}{
			{"all tokens", index.BuildOptions{}}, {"tiles of 2 × 2", index.BuildOptions{Pool: 4, PoolBy: pool.Tiles}}, {"tiles of 4 × 4", index.BuildOptions{Pool: 16, PoolBy: pool.Tiles}},
			{"neighbours, one for 4", index.BuildOptions{Pool: 4, PoolBy: pool.Neighbours}}, {"similar, one for 4", index.BuildOptions{Pool: 4}},
		} {
			if m.o.Pool == 4 && m.o.PoolBy == "" && !*similar {
				continue
			}
			path := filepath.Join(dir, fmt.Sprint(m.o.Pool, m.o.PoolBy, ".plaid"))
			m.o.Threads = 1
			began := processorTime()
			if _, err := index.Build(ctx, path, p, &m.o); err != nil {
				return err
			}
			took := processorTime() - began
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			ix, err := index.Open(ctx, path, nil)
			if err != nil {
				return err
			}
			defer ix.Close()
			e, err := search.New(ctx, ix, &search.EngineOptions{Threads: 1})
			if err != nil {
				return err
			}
			defer e.Close()
			line := func(name string, answer func(q search.Query) ([]search.Hit, error)) error {
				first, ten := 0, 0
				began := processorTime()
				for i, q := range qs {
					hits, err := answer(q)
					if err != nil {
						return err
					}
					at := slices.IndexFunc(hits, func(h search.Hit) bool { return h.ID == truth[i] })
					if at == 0 {
						first++
					}
					if at >= 0 && at < 10 {
						ten++
					}
				}
				spent := processorTime() - began
				n := float64(len(qs))
				_, err := fmt.Fprintf(stdout, "| %s | %.0f | %.0f | %.3f | %.3f | %.2f |\n", name, float64(info.Size())/1e6, took.Seconds(), float64(first)/n, float64(ten)/n, float64(spent)/float64(time.Millisecond)/n)
				return err
			}
			err = line(m.name, func(q search.Query) ([]search.Hit, error) {
				r, err := e.Search(ctx, q, search.Options{K: 10})
				return r.Hits, err
			})
			if err != nil {
				return err
			}
			if full == nil {
				full = e
				continue
			}
			err = line(m.name+", then all tokens of 50", func(q search.Query) ([]search.Hit, error) {
				r, err := e.Search(ctx, q, search.Options{K: 50})
				if err != nil {
					return nil, err
				}
				o := search.Options{K: 10, Mode: search.Candidates}
				for _, h := range r.Hits {
					o.Candidates = append(o.Candidates, h.ID)
				}
				r, err = full.Search(ctx, q, o)
				return r.Hits, err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}
