// Package beir evaluates a test collection in BEIR's layout: it builds an index, searches it, and
// computes measures.
package beir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/quality"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// Errors of this package, in addition to those of eval, index, search and vectors.
var (
	// ErrNoVectors reports a folder without docs or queries.
	ErrNoVectors = errors.New("no vectors")
	// ErrNoMatch reports vectors and judgements that have no ids in common.
	ErrNoMatch = errors.New("vectors and judgements have no ids in common")
)

// Options are the options of Run.
type Options struct {
	Split string // of the judgements. "" means test
	// Index is the file of the index. An existing index is searched as it is. "" means a temporary
	// file.
	Index string
	Build index.BuildOptions
	// Open has the options for opening the index.
	Open index.Options
	// Search has the options of searches. A K of 0 means 100. K is raised to the deepest cutoff of
	// Measures, and by one with Eval.ExcludeSelf.
	Search   search.Options
	Measures []eval.Measure // by default nDCG@10, R@100, RR@10, AP, Success@5
	Eval     eval.Options
	// CheckID, where set, returns an error for ids of queries and documents that the run must not
	// have. It is called as early as possible, before encoding and searching. The first argument
	// is "query" or "document".
	CheckID func(what, id string) error
	// Device, where set, is the device that searches. Build has the device of the build.
	Device   kernels.Device
	Threads  int // of building and searching. 0 means one a processor
	Progress func(index.Progress)
}

// Report is the result of Run.
type Report struct {
	Collection string       `json:"collection"`      // the folder
	Split      string       `json:"split"`           // of the judgements
	Docs       int          `json:"docs"`            // in the index
	Passages   int          `json:"passages"`        // in which some of these documents are stored
	Tokens     int64        `json:"tokens"`          // of these documents
	Bytes      int64        `json:"bytes"`           // of the file
	Queries    int          `json:"queries"`         // judged
	Unsearched int          `json:"without_vectors"` // judged queries without vectors; they count 0
	Missing    int          `json:"judged_missing"`  // distinct judged documents that the index lacks
	K          int          `json:"k"`               // documents requested by each search
	Result     *eval.Result `json:"-"`               // the measures
	Run        *eval.Run    `json:"-"`               // the hits
	Stats      search.Stats `json:"search"`          // the sum over all searches
	// Latency is that of queries in batches, one query for each thread.
	Latency quality.Latency `json:"latency"`
	Reused  bool            `json:"index_reused"` // the index existed, and was searched as it is
	// Seconds are elapsed times. Build is 0 for an existing index. Total includes reading files.
	Seconds struct {
		Build    float64 `json:"build"`
		Search   float64 `json:"search"`
		Evaluate float64 `json:"evaluate"`
		Total    float64 `json:"total"`
	} `json:"seconds"`
}

// QueriesAreDocuments reports whether most queries found their own id first, which is possible only
// without ExcludeSelf.
func (r *Report) QueriesAreDocuments() bool {
	return 2*r.Result.SelfFirst > r.Result.Count(eval.AverageEvaluated)
}

// Files finds the vectors of documents and of queries in a folder: docs or queries as .npy, .npz,
// .safetensors or .jsonl. Lengths, masks and ids that the format does not contain are in separate
// files: doclens and querylens (.npy, .json, .txt), doc_mask and query_mask (.npy), doc_ids and
// query_ids (.txt, .json, .npy).
func Files(dir string) (docs, queries vectors.Files, err error) {
	find := func(base string, exts ...string) string {
		for _, ext := range exts {
			path := filepath.Join(dir, base+ext)
			if info, serr := os.Stat(path); serr == nil && !info.IsDir() {
				return path
			}
		}
		return ""
	}
	filesOf := func(base, lengths, prefix string) vectors.Files {
		return vectors.Files{
			Vectors: find(base, ".npy", ".npz", ".safetensors", ".jsonl"),
			Lengths: find(lengths, ".npy", ".json", ".txt"),
			Mask:    find(prefix+"_mask", ".npy"),
			IDs:     find(prefix+"_ids", ".txt", ".json", ".npy"),
		}
	}
	docs, queries = filesOf("docs", "doclens", "doc"), filesOf("queries", "querylens", "query")
	if _, err := os.Stat(dir); err != nil {
		return docs, queries, err
	}
	for _, file := range []struct{ name, path string }{
		{"docs", docs.Vectors}, {"queries", queries.Vectors},
	} {
		if file.path == "" {
			return docs, queries, fmt.Errorf("%s: %w: it has no %s.npy, .npz, .safetensors or .jsonl",
				dir, ErrNoVectors, file.name)
		}
	}
	return docs, queries, nil
}

// Vectors opens the vectors of a collection, from files or by encoding texts.
type Vectors struct {
	// Docs calls use with the vectors of the documents. It is not called if the index exists.
	Docs func(ctx context.Context, use func(vectors.Source) error) error
	// Queries calls use with the vectors of the queries, at least of the judged ones.
	Queries func(ctx context.Context, judged func(id string) bool, use func(vectors.Source) error) error
	// Model, where set, made the vectors. An index by another model is an error.
	Model *storage.Model
	// DocsName and QueriesName name the sources in errors.
	DocsName, QueriesName string
}

// Folder returns the vectors in the files that [Files] finds.
func Folder(dir string) (Vectors, error) {
	docs, queries, err := Files(dir)
	queries.Queries = true
	read := func(ctx context.Context, files vectors.Files, use func(vectors.Source) error) error {
		src, err := vectors.Open(ctx, files)
		if err != nil {
			return err
		}
		return errors.Join(use(src), src.Close())
	}
	return Vectors{
		Docs: func(ctx context.Context, use func(vectors.Source) error) error { return read(ctx, docs, use) },
		Queries: func(ctx context.Context, _ func(string) bool, use func(vectors.Source) error) error {
			return read(ctx, queries, use)
		},
		DocsName: docs.Vectors, QueriesName: queries.Vectors,
	}, err
}

// Run indexes the documents of a collection, searches every judged query of the split, and
// evaluates the hits. It reads only the judgements from dir, qrels/<split>.tsv.
func Run(ctx context.Context, dir string, in Vectors, o Options) (r *Report, err error) {
	start := time.Now()
	if o.Split == "" {
		o.Split = "test"
	}
	if len(o.Measures) == 0 {
		if o.Measures, err = eval.ParseMeasureList(eval.DefaultMeasures); err != nil {
			return nil, err
		}
	}
	qrels, err := eval.LoadSplit(dir, o.Split)
	if err != nil {
		return nil, err
	}
	if o.CheckID != nil {
		for _, query := range qrels.Queries() {
			if err := o.CheckID("query", query); err != nil {
				return nil, err
			}
		}
	}
	r = &Report{Collection: dir, Split: o.Split, Queries: qrels.Len(), K: searchDepth(&o)}
	if o.Index == "" {
		temp, tempErr := os.MkdirTemp("", "plaid-beir-")
		if tempErr != nil {
			return nil, tempErr
		}
		defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
		o.Index = filepath.Join(temp, "index.plaid")
	}
	if err := r.buildIndex(ctx, &in, &o); err != nil {
		return nil, err
	}
	ix, err := index.Open(ctx, o.Index, &o.Open)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()
	if err := r.search(ctx, ix, &in, qrels, &o); err != nil {
		return nil, err
	}
	evaluate := time.Now()
	if r.Result, err = eval.Evaluate(qrels, r.Run, o.Measures, o.Eval); err != nil {
		return nil, err
	}
	r.Seconds.Evaluate = time.Since(evaluate).Seconds()
	r.Seconds.Total = time.Since(start).Seconds()
	return r, nil
}

// searchDepth returns how many documents the searches must return for the measures.
func searchDepth(o *Options) int {
	k := o.Search.K
	if k == 0 {
		k = 100
	}
	for _, m := range o.Measures {
		k = max(k, m.Cutoff())
	}
	if o.Eval.ExcludeSelf {
		k++
	}
	return k
}

// buildIndex builds the index, unless it exists.
func (r *Report) buildIndex(ctx context.Context, in *Vectors, o *Options) error {
	if _, err := os.Stat(o.Index); err == nil {
		r.Reused = true
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	} else {
		o.Build.Threads, o.Build.Progress, o.Build.Model = o.Threads, o.Progress, in.Model
		err := in.Docs(ctx, func(src vectors.Source) error {
			for i := range src.Len() {
				if err := o.checkDocumentID(src.ID(i)); err != nil {
					return err
				}
			}
			start := time.Now()
			_, err := index.Build(ctx, o.Index, src, &o.Build)
			r.Seconds.Build = time.Since(start).Seconds()
			return err
		})
		if errors.Is(err, index.ErrNoDocuments) || errors.Is(err, index.ErrNoTokens) {
			err = fmt.Errorf("%s: %w", in.DocsName, err)
		}
		if err != nil {
			return err
		}
	}
	info, err := os.Stat(o.Index)
	if err == nil {
		r.Bytes = info.Size()
	}
	return err
}

// checkDocumentID calls CheckID for a document, if it is set.
func (o *Options) checkDocumentID(id string) error {
	if o.CheckID == nil {
		return nil
	}
	return o.CheckID("document", id)
}

// progressBatch is the number of queries between two reports of progress.
const progressBatch = 64

// search answers the judged queries.
func (r *Report) search(ctx context.Context, ix *index.Index, in *Vectors, qrels *eval.Qrels, o *Options) (err error) {
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snap.Close()) }()
	r.Docs, r.Passages, r.Tokens = snap.Documents(), int(snap.State().Passages), int64(snap.State().LiveTokens)
	if err := r.countMissing(snap, qrels); err != nil {
		return err
	}
	if o.CheckID != nil {
		for ordinal := range snap.State().Docs {
			if snap.Live(ordinal) {
				if err := o.checkDocumentID(snap.ID(ordinal)); err != nil {
					return err
				}
			}
		}
	}
	var qs []search.Query
	var ids []string
	err = in.Queries(ctx, qrels.Judged, func(src vectors.Source) error {
		for d, err := range src.Docs(ctx, 0, src.Len()) {
			if err != nil {
				return err
			}
			if qrels.Judged(d.ID) {
				qs = append(qs, search.Query{
					Vectors: append([]float32(nil), d.Tokens...), Dim: src.Dim(), Model: in.Model,
				})
				ids = append(ids, d.ID)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Unsearched = r.Queries - len(ids)
	if len(ids) == 0 {
		return NoneJudgedError(in.QueriesName)
	}
	start := time.Now()
	o.Search.K = r.K
	engineOptions := &search.EngineOptions{Threads: o.Threads, Device: o.Device, Logger: o.Open.Logger}
	engine, err := search.NewAt(ctx, snap, engineOptions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	r.Run = &eval.Run{Tag: "plaid"}
	times := make([]time.Duration, 0, len(qs))
	for lo := 0; lo < len(qs); lo += progressBatch {
		hi := min(lo+progressBatch, len(qs))
		results, err := engine.SearchBatch(ctx, qs[lo:hi], o.Search)
		if failed := (*search.QueryError)(nil); errors.As(err, &failed) {
			return fmt.Errorf("query %q: %w", ids[lo+failed.Index], failed.Err)
		} else if err != nil {
			return err
		}
		for i, res := range results {
			times = append(times, res.Stats.Times.Total)
			r.Stats.Add(res.Stats)
			if err := AddHits(r.Run, ids[lo+i], res.Hits); err != nil {
				return err
			}
		}
		if o.Progress != nil {
			o.Progress(index.Progress{Stage: "search", Done: int64(hi), Total: int64(len(qs)), Unit: "queries"})
		}
	}
	r.Seconds.Search = time.Since(start).Seconds()
	r.Latency = quality.NewLatency(times)
	return nil
}

// AddHits adds the result of a search to a run. Ranks count from 1.
func AddHits(run *eval.Run, query string, hits []search.Hit) error {
	list := make([]eval.ScoredDocument, len(hits))
	for i, h := range hits {
		list[i] = eval.ScoredDocument{Doc: h.ID, Score: float64(h.Score), Rank: i + 1}
	}
	return run.Add(query, list...)
}

// NoneJudgedError returns the error for queries without judgements.
func NoneJudgedError(queries string) error {
	return fmt.Errorf("%w: none of the queries of %s is judged in the split", ErrNoMatch, queries)
}

// countMissing counts the judged documents that the index lacks. If it lacks all, that is an
// [ErrNoMatch].
func (r *Report) countMissing(snap *index.Snapshot, qrels *eval.Qrels) error {
	present, missing := 0, map[string]struct{}{}
	for _, q := range qrels.Queries() {
		for doc := range qrels.Judgements(q) {
			_, ok, err := snap.Ordinal(doc)
			if err != nil {
				return err
			}
			if ok {
				present++
			} else {
				missing[doc] = struct{}{}
			}
		}
	}
	if r.Missing = len(missing); present == 0 {
		return fmt.Errorf("%w: none of the %d judged documents is in the index; are doc_ids there?",
			ErrNoMatch, r.Missing)
	}
	return nil
}
