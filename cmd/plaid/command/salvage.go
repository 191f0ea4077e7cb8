package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// salvaged is the report of compact --salvage.
type salvaged struct {
	Path     string `json:"path"`
	Out      string `json:"out"`
	Complete bool   `json:"complete"`
	*index.SalvageReport
}

// salvage writes what can be read of a damaged index to a new file.
func (a *app) salvage(ctx context.Context, path, to string, withDeleted bool) error {
	var r *index.SalvageReport
	err := a.locked(ctx, func(wait time.Duration) (err error) {
		r, err = index.Salvage(ctx, path, to, &index.SalvageOptions{
			WithDeleted: withDeleted, LockTimeout: wait, Logger: a.logger(), Progress: a.progress(),
		})
		return err
	})
	a.console.Clear()
	if r == nil {
		return err
	}
	if !a.json {
		for _, fault := range r.Faults {
			a.warn("%s: %s", path, fault)
		}
		if err != nil {
			return err // nothing was written
		}
	} else if err != nil && !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	complete := err == nil && r.Complete()
	err = errors.Join(err, a.reportAs("salvage", salvaged{path, to, complete, r}, func(b *bytes.Buffer) { salvageText(b, to, r) }))
	if err != nil || complete {
		return err
	}
	return fmt.Errorf("%w: not all of %s could be salvaged", errPartial, path)
}

func salvageText(b *bytes.Buffer, to string, r *index.SalvageReport) {
	fmt.Fprintf(b, "%s: %s, %s\n", to, out.Plural(r.Docs, "document"), out.Plural(r.Tokens, "token"))
	if tx := r.Transaction; tx.DamagedMeta {
		fmt.Fprintf(b, "as of transaction %d: the other meta page is damaged", tx.ID)
		if tx.Claimed > 0 {
			fmt.Fprintf(b, ", and says %d", tx.Claimed)
		}
		b.WriteString("; a later change is not seen\n")
	}
	if r.StateLost {
		b.WriteString("the counters are lost: documents at the end, of which no id is left, are not listed\n")
	}
	for _, l := range r.Lost {
		for _, id := range l.IDs {
			fmt.Fprintf(b, "lost: %q: %s\n", id, l.Why)
		}
		if n := l.Docs - int64(len(l.IDs)); n > 0 {
			fmt.Fprintf(b, "lost: %s of ordinals %d to %d whose ids are lost too: %s\n", out.Plural(n, "document"), l.First, l.Last, l.Why)
		}
	}
	for _, id := range r.LostPayloads {
		fmt.Fprintf(b, "without metadata: %q\n", id)
	}
	if n := r.UnknownPayloads; n > 0 {
		fmt.Fprintf(b, "lost: metadata of %s that are not known\n", out.Plural(n, "document"))
	}
	for _, id := range r.UncertainPayloads {
		fmt.Fprintf(b, "may have had metadata: %q\n", id)
	}
	for _, id := range r.Uncertain {
		fmt.Fprintf(b, "may have been deleted: %q\n", id)
	}
}
