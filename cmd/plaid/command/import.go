package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/interop"
	"github.com/plaid-ir/plaid/vectors"
)

// importReport is what `plaid import --json` prints.
type importReport struct {
	Path          string   `json:"path"`
	Bytes         int64    `json:"bytes"`
	Engine        string   `json:"engine"`
	Docs          int      `json:"docs"`
	Passages      int      `json:"passages"`
	EmptyDocs     int      `json:"empty_docs"`
	Payloads      int      `json:"metadata"`
	Tokens        int64    `json:"tokens"`
	ClampedTokens int      `json:"clamped_tokens"`
	Dim           int      `json:"dim"`
	Nbits         int      `json:"nbits"`
	Centroids     int      `json:"centroids"`
	WeightChange  float64  `json:"weight_change"`
	WeightBefore  float64  `json:"weight_before"`
	WeightAfter   float64  `json:"weight_after"`
	Warnings      []string `json:"warnings"`
}

func (a *app) importCommand() *cobra.Command {
	var ids, payload string
	var work flags.Resources
	o := index.ImportOptions{}
	cmd := &cobra.Command{
		Use:   "import SOURCE INDEX",
		Short: "Import the index folder of another engine",
		Long: `
Import the index folder of ColBERT, fast-plaid or next-plaid without modifying it.
Centroids and codes are copied as they are, bucket weights are rounded to 16 bits; the
report says by how much they changed.

SOURCE is the folder with metadata.json and centroids, or the folder of a PyLate index,
whose ids are imported, too. The program of vectors/formats (docs/formats.md) also
imports the metadata.db of fast-plaid and next-plaid, unless --metadata names another
file, or none; this program does not read it.`,
		Example: `  plaid import colbert/indexes/docs docs.plaid --ids ids.txt
  plaid import fast-plaid-index docs.plaid --metadata corpus.jsonl --verify-ivf`,
		Args: namedArgs("SOURCE", "INDEX"),
	}
	f := cmd.Flags()
	f.StringVar(&ids, "ids", "",
		"`FILE` with one id a line (default: those of ids.txt in SOURCE or of PyLate, or row numbers from 0)")
	f.StringVar(&payload, "metadata", "", "JSON-lines `FILE` with what to store beside the documents, matched by "+
		"_id or id; none: nothing (default: metadata.db of SOURCE, where the program reads it)")
	f.BoolVar(&o.VerifyIVF, "verify-ivf", false, "check the inverted lists of the source against its codes")
	f.BoolVar(&o.Force, "force", false, "replace an index that is there")
	work.Register(f)
	f.Bool("json", false, "print the report as JSON")
	cmd.RunE = a.commandFunc(func(ctx context.Context, args []string) (err error) {
		defer work.LimitMemory()()
		o.Threads, o.Memory = work.Threads, work.Memory
		o.Logger, o.Progress = a.logger(), a.progress()
		if ids != "" {
			if o.IDs, err = vectors.ReadIDs(ctx, ids); err != nil {
				return err
			}
		}
		err = a.importIndex(ctx, args[0], args[1], payload, o)
		if fileError := (*vectors.FileError)(nil); ids != "" && errors.Is(err, vectors.ErrID) &&
			!errors.As(err, &fileError) {
			return fmt.Errorf("%s: %w", ids, err) // the number of ids is wrong
		}
		return err
	})
	return cmd
}

// importIndex imports the index folder of another engine. payload is the file with metadata,
// "none", or "".
func (a *app) importIndex(ctx context.Context, source, path, payload string, o index.ImportOptions) (err error) {
	if payload == "none" {
		payload = ""
		o.Payload = func(int, string) ([]byte, error) { return nil, nil }
	}
	var notices []string
	if payload != "" {
		var objects *vectors.Payloads
		if objects, err = vectors.OpenPayloads(ctx, payload); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, objects.Close()) }()
		o.Payload = func(_ int, id string) ([]byte, error) { return objects.Get(id) }
		o.Unchanged = func() error {
			if err := objects.CheckMatched(func(text string) { notices = append(notices, text) }); err != nil {
				return err
			}
			return objects.CheckUnchanged()
		}
	}
	o.LockTimeout = a.lockTimeout
	// Import, and warn of losses.
	r, err := index.Import(ctx, source, path, &o)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	r.Warnings = append(r.Warnings, notices...)
	for _, w := range r.Warnings {
		a.printWarning("%s", w)
	}
	// Report.
	rep := importReport{
		Path:          path,
		Bytes:         info.Size(),
		Engine:        r.Engine,
		Docs:          r.Docs,
		Passages:      r.Passages,
		EmptyDocs:     r.Empty,
		Payloads:      r.Payloads,
		Tokens:        r.Tokens,
		ClampedTokens: r.Clamped,
		Dim:           r.Dim,
		Nbits:         r.Nbits,
		Centroids:     r.K,
		WeightChange:  r.WeightChange,
		WeightBefore:  r.WeightBefore,
		WeightAfter:   r.WeightAfter,
		Warnings:      append([]string{}, r.Warnings...),
	}
	return a.report(rep, func(b *bytes.Buffer) {
		fmt.Fprintf(b, "%s: %s (%d empty, %d with metadata), %s of dimension %d at %s, from %s\n", path,
			out.Documents(rep.Docs, rep.Passages), rep.EmptyDocs, rep.Payloads, out.Plural(rep.Tokens, "token"),
			rep.Dim,
			out.Plural(rep.Nbits, "bit"), formatName(rep.Engine))
		fmt.Fprintf(b, "codec: %s; bucket weights moved by %.3g at most, from %.5g to %.5g\n",
			out.Plural(rep.Centroids, "centroid"), rep.WeightChange, rep.WeightBefore, rep.WeightAfter)
		fmt.Fprintf(b, "file:  %s\n", out.Bytes(rep.Bytes))
	})
}

// formatName describes the format of a folder. Two engines share one format, so the folder does not
// show which of them wrote it.
func formatName(engine string) string {
	switch engine {
	case interop.EngineNextPlaid:
		return "the format that fast-plaid and next-plaid share"
	case interop.EngineFastPlaid:
		return "fast-plaid's format"
	}
	return engine
}
