// Quickstart encodes a small real collection of texts with a small model, indexes
// it, searches it, and says how good the ranking is and how small the index.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/search"
)

//go:embed colbert-nano/*.json colbert-nano/artifact.metadata colbert-nano/model.safetensors
//go:embed scifact-sample/*.jsonl scifact-sample/qrels
var files embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "plaid-quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, files); err != nil {
		return err
	}
	data, path := filepath.Join(dir, "scifact-sample"), filepath.Join(dir, "scifact.plaid")

	// Texts become token vectors; Spool keeps them in a file, here a temporary one.
	encoder, err := encode.Open(filepath.Join(dir, "colbert-nano"), nil)
	if err != nil {
		return err
	}
	defer encoder.Close()
	start := time.Now()
	docs, texts, err := encode.Spool(ctx, encoder, withPayload(encode.JSONL(ctx, filepath.Join(data, "corpus.jsonl"))), "", nil)
	if err != nil {
		return err
	}
	defer docs.Close()
	fmt.Fprintf(out, "Encoded %d abstracts, %d tokens, in %.1f s.\n", texts.Texts, texts.Tokens, time.Since(start).Seconds())

	// Vectors become an index.
	start = time.Now()
	report, err := index.Build(ctx, path, docs, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Indexed %d token vectors (none of punctuation) in %.1f s.\n\n", report.Tokens, time.Since(start).Seconds())

	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	defer ix.Close()

	if err := searchAll(ctx, out, ix, encoder, data); err != nil {
		return err
	}
	return describe(ctx, out, ix)
}

// withPayload keeps the title of each text beside its vectors, for results to show.
func withPayload(texts iter.Seq2[encode.Text, error]) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		for t, err := range texts {
			if err == nil {
				t.Payload, err = json.Marshal(map[string]string{"title": t.Title})
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

// searchAll answers every claim, shows the first three, and evaluates all.
func searchAll(ctx context.Context, out io.Writer, ix *index.Index, encoder *encode.Encoder, data string) error {
	qrels, err := eval.LoadQrelsOf(data, "test")
	if err != nil {
		return err
	}
	engine, err := search.New(ctx, ix, nil)
	if err != nil {
		return err
	}
	defer engine.Close()
	run := &eval.Run{Tag: "plaid"}
	shown := 0
	for q, err := range encode.JSONL(ctx, filepath.Join(data, "queries.jsonl")) {
		if err != nil {
			return err
		}
		query, err := encoder.Query(ctx, q.Full())
		if err != nil {
			return err
		}
		res, err := engine.Search(ctx, search.Query{Vectors: query.Vectors}, search.Options{K: 10, Payload: true})
		if err != nil {
			return err
		}
		if err := beir.AddHits(run, q.ID, res.Hits); err != nil {
			return err
		}
		if shown < 3 {
			shown++
			if err := show(out, q.Full(), q.ID, res.Hits[:3], qrels); err != nil {
				return err
			}
		}
	}
	ndcg, err := eval.ParseMeasure("nDCG@10")
	if err != nil {
		return err
	}
	result, err := eval.Evaluate(qrels, run, []eval.Measure{ndcg}, eval.Options{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "nDCG@10 over %d claims: %.4f (exact float vectors: 0.8910)\n", len(run.Queries()), result.Means[0])
	return nil
}

func show(out io.Writer, text, id string, hits []search.Hit, qrels *eval.Qrels) error {
	fmt.Fprintf(out, "%q\n", text)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, h := range hits {
		var doc struct{ Title string }
		if err := json.Unmarshal(h.Payload, &doc); err != nil {
			return err
		}
		mark := ""
		if g, ok := qrels.Grade(id, h.ID); ok && g > 0 {
			mark = "  ← judged relevant"
		}
		fmt.Fprintf(w, "  %d.\t%.3f\t%s\t%s%s\n", i+1, h.Score, h.ID, doc.Title, mark)
	}
	fmt.Fprintln(w)
	return w.Flush()
}

func describe(ctx context.Context, out io.Writer, ix *index.Index) error {
	snap, err := ix.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	info, err := snap.Info(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The index takes %.1f bytes a token (float32 vectors: %d), beside %d KiB of centroids and %d KiB of text.\n",
		info.BytesPerToken, 4*info.Header.Dim, info.Sizes.Codec>>10, info.Sizes.Payload>>10)
	return nil
}
