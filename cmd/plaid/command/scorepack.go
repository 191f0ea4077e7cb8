package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/plaid-ir/plaid/vectors/packed"
)

// checkPack finds flags that do not go with --pack.
func (s *scoreFlags) checkPack(f *pflag.FlagSet) error {
	for _, name := range []string{"queries", "query-lengths", "query-mask", "query-ids", "candidates", "allow-missing", "k", "normalize", "device", "format", "tag"} {
		if f.Changed(name) {
			return flags.Usagef("--pack writes the documents and scores nothing: it does not go with --%s", name)
		}
	}
	if !strings.EqualFold(filepath.Ext(s.pack), packed.Suffix) {
		return flags.Usagef("--pack %s: the name has to end in %s", s.pack, packed.Suffix)
	}
	return nil
}

// pack writes documents as a file of packed ones.
func (a *app) pack(ctx context.Context, s *scoreFlags) (err error) {
	if err := files.CanCreate(s.pack); err != nil {
		return err
	}
	src, err := s.docs.Open(ctx, a.in)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if src.Dim() == 0 {
		return fmt.Errorf("%s: %w: no document has a token", strings.Join(s.docs.Vectors, ", "), vectors.ErrShape)
	}
	whole, err := wholeOf(src)
	if err != nil {
		return err
	}
	var docs *packed.Documents
	if whole != nil {
		defer func() { err = errors.Join(err, whole.close()) }()
		if err := whole.checked(ctx, 0, src.Len(), s.threads); err != nil {
			return err
		}
		docs = &packed.Documents{Batch: whole.all.Batch}
	} else if docs, err = wholeInMemory(ctx, src); err != nil {
		return err
	}
	backend, err := maxsim.Select(a.backend)
	if err != nil {
		return err
	}
	docs.IDs = givenIDs(src)
	docs.Screening, err = maxsim.Pack(ctx, backend, docs.Batch, s.threads)
	if err == nil {
		err = files.WriteAtomic(ctx, s.pack, func(w io.Writer) error {
			if err := packed.Write(ctx, w, docs); err != nil || whole == nil {
				return err
			}
			return whole.unchanged()
		}, s.docs.Vectors...)
	}
	if whole != nil && err != nil {
		err = whole.fault(err)
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(s.pack)
	if err != nil {
		return err
	}
	report := struct {
		Path   string `json:"path"`
		Docs   int    `json:"docs"`
		Tokens int    `json:"tokens"`
		Dim    int    `json:"dim"`
		Type   string `json:"type"`
		Bytes  int64  `json:"bytes"`
	}{s.pack, src.Len(), docs.Batch.CountTokens(), src.Dim(), docs.Batch.Tokens.Type.String(), info.Size()}
	return a.reportAs("pack", report, func(b *bytes.Buffer) {
		fmt.Fprintf(b, "%s: %s, %s of %d dimensions, %s, %d bytes\n",
			s.pack, out.Plural(report.Docs, "document"), out.Plural(report.Tokens, "token"), report.Dim, report.Type, report.Bytes)
	})
}
