package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	_ "github.com/plaid-ir/plaid/kernels/cuda" // devices
	"github.com/plaid-ir/plaid/kernels/maxsim"
	_ "github.com/plaid-ir/plaid/kernels/maxsim/cpu" // the backends
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

const (
	pictureK     = 10 // documents of a search
	pictureStage = 50 // of a first stage
)

// pictureStudy is how pages of pictures are found, with fewer vectors and in two stages.
type pictureStudy struct {
	pages   *pictures
	queries []search.Query
	truth   []string   // the page that a question is about
	exact   [][]string // the best by exact MaxSim over the vectors as they were made
	device  kernels.Device
	dir     string // of what is kept
	full    *pictureEngines
	out     io.Writer
}

// pictureEngines search one index: on one thread of the processor, and on a device if there
// is one.
type pictureEngines struct{ cpu, device *search.Engine }

func picturesStudy(f *flag.FlagSet) measuring {
	pages := f.Int("pages", 2000, "how many pages")
	questions := f.Int("questions", 300, "how many questions")
	pooled := f.String("pooled", "tiles 4,tiles 16,neighbours 4", "`METHOD NUMBER` of each index beside that of all tokens")
	centroids := f.Int("centroids", 0, "number of centroids of each index (0: by the number of tokens)")
	device := f.String("device", "cpu", "build on this device, all processors beside it, and search there too")
	write := f.String("write", "", "write vectors for eval/peers/engines.py into this `FOLDER`, and no more")
	others := f.String("others", "", "`FILES`, separated by commas, that eval/peers/engines.py has made of searches: judge them, and no more")
	dir := f.String("dir", "", "keep indexes and what is exact in this `FOLDER`, use what is there, and go on with what was interrupted")
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
		s := &pictureStudy{pages: newPictures(*pages), out: stdout}
		for i := range *questions {
			q, page := s.pages.question(i)
			s.queries, s.truth = append(s.queries, q), append(s.truth, s.pages.ID(page))
		}
		if *write != "" {
			return s.write(ctx, *write)
		}
		if s.device, _, err = kernels.OpenDevice(ctx, *device); err != nil {
			return err
		}
		if s.device != nil {
			defer s.device.Close()
		}
		if s.dir = *dir; s.dir == "" {
			if s.dir, err = os.MkdirTemp("", "plaid-pictures-"); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
		}
		if err := os.MkdirAll(s.dir, 0o755); err != nil {
			return err
		}
		if err := s.findExact(ctx); err != nil {
			return err
		}
		if *others != "" {
			return s.judge(strings.Split(*others, ","))
		}
		fmt.Fprintln(stdout, "| kept | MB | build s | first is right | among 10 | of the exact 10 | ms a question | on the device | in one call |")
		fmt.Fprintln(stdout, "| --- | --: | --: | --: | --: | --: | --: | --: | --: |")
		o := index.BuildOptions{Centroids: *centroids}
		if err := s.variant(ctx, "all tokens", o); err != nil {
			return err
		}
		for _, p := range strings.Split(*pooled, ",") {
			if p == "" {
				continue
			}
			if _, err := fmt.Sscan(p, &o.PoolBy, &o.Pool); err != nil {
				return fmt.Errorf("-pooled: %q: %w", p, err)
			}
			if err := s.variant(ctx, p, o); err != nil {
				return err
			}
		}
		return nil
	}
}

// findExact scores all pages with all questions, as they were made, unless it has been kept.
func (s *pictureStudy) findExact(ctx context.Context) error {
	path := filepath.Join(s.dir, fmt.Sprintf("exact-%d-%d.json", s.pages.n, len(s.queries)))
	kept, err := os.ReadFile(path)
	switch {
	case err == nil:
		err = json.Unmarshal(kept, &s.exact)
	case errors.Is(err, fs.ErrNotExist):
		if err = s.scoreAll(ctx); err == nil {
			var text []byte
			if text, err = json.Marshal(s.exact); err == nil {
				err = os.WriteFile(path, text, 0o644)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	first, among, _ := s.quality(s.exact)
	_, err = fmt.Fprintf(s.out, "Exact MaxSim over %d pages and %d questions: first is right %.3f, among 10 %.3f.\n\n", s.pages.n, len(s.queries), first, among)
	return err
}

func (s *pictureStudy) scoreAll(ctx context.Context) error {
	backend, err := maxsim.Select("")
	if err == nil && s.device != nil {
		backend, err = maxsim.On(s.device)
	}
	if err != nil {
		return err
	}
	var of []float32
	for _, q := range s.queries {
		of = append(of, q.Vectors...)
	}
	questions := maxsim.Padded(maxsim.Float32(of, pictureDim), questionWords+questionRest)
	top := maxsim.NewTop(pictureK)
	var block []float32
	score := func() error {
		err := top.Add(ctx, backend, questions, maxsim.Padded(maxsim.Float32(block, pictureDim), pictureRows), maxsim.Terms{})
		block = block[:0]
		return err
	}
	for d, err := range s.pages.Docs(ctx, 0, s.pages.n) {
		if err != nil {
			return err
		}
		if block = append(block, d.Tokens...); len(block) >= 256*pictureRows*pictureDim {
			if err := score(); err != nil {
				return err
			}
		}
	}
	if len(block) > 0 {
		if err := score(); err != nil {
			return err
		}
	}
	for _, hits := range top.Hits() {
		var ids []string
		for _, h := range hits {
			ids = append(ids, s.pages.ID(h.Doc))
		}
		s.exact = append(s.exact, ids)
	}
	return nil
}

// quality is how often the page asked for is first and among the ten best, and how many of
// the exact ten best are among those found.
func (s *pictureStudy) quality(found [][]string) (first, among, overlap float64) {
	n := float64(len(found))
	for i, ids := range found {
		ids = ids[:min(len(ids), pictureK)]
		switch at := slices.Index(ids, s.truth[i]); {
		case at == 0:
			first++
			among++
		case at > 0:
			among++
		}
		for _, id := range s.exact[i] {
			if slices.Contains(ids, id) {
				overlap += 1 / float64(len(s.exact[i]))
			}
		}
	}
	return first / n, among / n, overlap / n
}

// variant builds an index and searches it, alone and before all tokens.
func (s *pictureStudy) variant(ctx context.Context, name string, o index.BuildOptions) error {
	path := filepath.Join(s.dir, fmt.Sprintf("%d-%s-%d.plaid", s.pages.n, strings.ReplaceAll(name, " ", "-"), o.Centroids))
	o.Input = fmt.Sprintf("%d made-up pages", s.pages.n)
	clock := processorTime
	if o.Threads, o.Device = 1, s.device; s.device != nil {
		began := time.Now()
		o.Threads, clock = 0, func() time.Duration { return time.Since(began) }
	}
	began := clock()
	_, err := index.Build(ctx, path, s.pages, &o)
	took := fmt.Sprintf("%.0f", (clock() - began).Seconds())
	if errors.Is(err, storage.ErrExists) {
		took, err = "–", nil // it was kept
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	var e pictureEngines
	if e.cpu, err = search.New(ctx, ix, &search.EngineOptions{Threads: 1}); err != nil {
		return errors.Join(err, ix.Close())
	}
	if s.device != nil {
		if e.device, err = search.New(ctx, ix, &search.EngineOptions{Device: s.device}); err != nil {
			return errors.Join(err, e.cpu.Close(), ix.Close())
		}
	}
	built := fmt.Sprintf("%.0f | %s", float64(info.Size())/1e6, took)
	if s.full == nil {
		s.full = &e // open until the process ends: second stages need it
		return s.line(ctx, name, built, e.search)
	}
	defer ix.Close()
	defer e.close()
	if err := s.line(ctx, name, built, e.search); err != nil {
		return err
	}
	return s.line(ctx, fmt.Sprintf("%s, then all tokens of %d", name, pictureStage), built, func(ctx context.Context, on pictureEngine, qs []search.Query) ([]search.Result, error) {
		results, err := on(&e).SearchBatch(ctx, qs, search.Options{K: pictureStage})
		if err != nil {
			return nil, err
		}
		for i, r := range results {
			o := search.Options{K: pictureK, Mode: search.Candidates}
			for _, h := range r.Hits {
				o.Candidates = append(o.Candidates, h.ID)
			}
			again, err := on(s.full).Search(ctx, qs[i], o)
			if err != nil {
				return nil, err
			}
			results[i] = *again
		}
		return results, nil
	})
}

// pictureEngine is one of the two.
type pictureEngine func(*pictureEngines) *search.Engine

func onProcessor(e *pictureEngines) *search.Engine { return e.cpu }
func onDevice(e *pictureEngines) *search.Engine    { return e.device }

func (e *pictureEngines) search(ctx context.Context, on pictureEngine, qs []search.Query) ([]search.Result, error) {
	return on(e).SearchBatch(ctx, qs, search.Options{K: pictureK})
}

func (e *pictureEngines) close() error {
	if e.device == nil {
		return e.cpu.Close()
	}
	return errors.Join(e.cpu.Close(), e.device.Close())
}

// line answers all questions one by one on one thread, and on a device one by one and in one
// call, and prints what was found by the first.
func (s *pictureStudy) line(ctx context.Context, name, built string, answer func(context.Context, pictureEngine, []search.Query) ([]search.Result, error)) error {
	n := float64(len(s.queries)) * float64(time.Millisecond)
	singly := func(on pictureEngine, clock func() time.Duration) (found [][]string, ms float64, err error) {
		began := clock()
		for i := range s.queries {
			results, err := answer(ctx, on, s.queries[i:i+1])
			if err != nil {
				return nil, 0, err
			}
			var ids []string
			for _, h := range results[0].Hits {
				ids = append(ids, h.ID)
			}
			found = append(found, ids)
		}
		return found, float64(clock()-began) / n, nil
	}
	found, ms, err := singly(onProcessor, processorTime)
	if err != nil {
		return err
	}
	devices := "– | –"
	if s.device != nil {
		start := time.Now()
		wall := func() time.Duration { return time.Since(start) }
		if _, err := answer(ctx, onDevice, s.queries[:1]); err != nil { // puts on the device what is needed
			return err
		}
		_, one, err := singly(onDevice, wall)
		if err != nil {
			return err
		}
		began := wall()
		if _, err := answer(ctx, onDevice, s.queries); err != nil {
			return err
		}
		devices = fmt.Sprintf("%.2f | %.3f", one, float64(wall()-began)/n)
	}
	first, among, overlap := s.quality(found)
	_, err = fmt.Fprintf(s.out, "| %s | %s | %.3f | %.3f | %.3f | %.2f | %s |\n", name, built, first, among, overlap, ms, devices)
	return err
}

// write writes the vectors and the questions as eval/peers/engines.py reads them.
func (s *pictureStudy) write(ctx context.Context, dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lengths := make([]int64, s.pages.n)
	for i := range lengths {
		lengths[i] = pictureRows
	}
	n, err := vectors.CreateNPY(filepath.Join(dir, "doclens.npy"), "<i8", len(lengths))
	if err == nil {
		err = errors.Join(n.Ints(lengths), n.Close())
	}
	if err != nil {
		return err
	}
	q, err := vectors.CreateNPY(filepath.Join(dir, "queries.npy"), "<f4", len(s.queries), questionWords+questionRest, pictureDim)
	if err != nil {
		return err
	}
	for i := range s.queries {
		err = cmp.Or(err, q.Float32s(s.queries[i].Vectors))
	}
	if err = errors.Join(err, q.Close()); err != nil {
		return err
	}
	d, err := vectors.CreateNPY(filepath.Join(dir, "docs.npy"), "<f2", s.pages.n*pictureRows, pictureDim)
	if err != nil {
		return err
	}
	for doc, made := range s.pages.Docs(ctx, 0, s.pages.n) {
		if err = cmp.Or(made, d.Float32s(doc.Tokens)); err != nil {
			break
		}
	}
	return errors.Join(err, d.Close())
}

// judge prints a line for each file of searches of another engine.
func (s *pictureStudy) judge(files []string) error {
	fmt.Fprintln(s.out, "| engine | first is right | among 10 | of the exact 10 | ms a question |")
	fmt.Fprintln(s.out, "| --- | --: | --: | --: | --: |")
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var of struct {
			Hits   [][]int     `json:"hits"`
			CPU    float64     `json:"cpu_ms"`
			Took   [][]float64 `json:"latency_ms"`
			Device string      `json:"device"`
		}
		if err := json.Unmarshal(b, &of); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(of.Hits) != len(s.queries) {
			return fmt.Errorf("%s: hits of %d questions, and there are %d", name, len(of.Hits), len(s.queries))
		}
		found := make([][]string, len(of.Hits))
		for i, hits := range of.Hits {
			for _, doc := range hits {
				found[i] = append(found[i], s.pages.ID(doc))
			}
		}
		ms := of.CPU
		if all := slices.Sorted(slices.Values(slices.Concat(of.Took...))); strings.HasPrefix(of.Device, "cuda") && len(all) > 0 {
			ms = all[len(all)/2] // what the processor does says nothing
		}
		first, among, overlap := s.quality(found)
		if _, err := fmt.Fprintf(s.out, "| %s | %.3f | %.3f | %.3f | %.2f |\n", filepath.Base(name), first, among, overlap, ms); err != nil {
			return err
		}
	}
	return nil
}
