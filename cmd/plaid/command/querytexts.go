package command

import (
	"context"
	"errors"
	"iter"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/vectors"
)

// encodedQueries are queries as vectors, with their texts.
type encodedQueries struct {
	*vectors.Spool
	texts     []string
	truncated int
}

// queryBatch is how many queries are encoded between two looks at the context and
// the progress.
const queryBatch = 256

// encodeQueries encodes texts as queries. One without a word is an error, and so
// are ids that come twice; from names where the texts are from in it.
func (a *app) encodeQueries(ctx context.Context, e *encode.Encoder, texts iter.Seq2[encode.Text, error], from string, float16 bool) (_ *encodedQueries, err error) {
	defer func() {
		if te := (*encode.TextError)(nil); errors.As(err, &te) && te.Path == "" {
			te.Path = from
		}
	}()
	var list []encode.Text
	for t, err := range texts {
		if err != nil {
			return nil, err
		}
		t.Title, t.Text, t.Payload = "", t.Full(), nil
		list = append(list, t)
	}
	if _, err = encode.SurveyTexts(encode.Texts(list...)); err != nil {
		return nil, err
	}
	q := &encodedQueries{}
	var show func(out.Texts)
	if !a.quiet {
		show = out.TextProgress(a.console, a.now)
	}
	docs := func(yield func(vectors.Document, error) bool) {
		tokens := int64(0)
		for lo := 0; lo < len(list); lo += queryBatch {
			part := list[lo:min(lo+queryBatch, len(list))]
			batch := make([]string, len(part))
			for i, t := range part {
				batch[i] = t.Text
			}
			embeddings, err := e.Queries(ctx, batch)
			if err != nil {
				yield(vectors.Document{}, err)
				return
			}
			for i, em := range embeddings {
				if len(em.Vectors) == 0 {
					err = &encode.TextError{Row: lo + i, ID: part[i].ID, Err: errEmptyQuery}
				}
				if em.Truncated {
					q.truncated++
				}
				tokens += int64(len(em.Tokens))
				q.texts = append(q.texts, part[i].Text)
				if !yield(vectors.Document{ID: part[i].ID, Tokens: em.Vectors}, err) || err != nil {
					return
				}
			}
			if show != nil {
				show(out.Texts{Done: lo + len(part), Total: len(list), Bytes: int64(lo + len(part)), AllBytes: int64(len(list)), Tokens: tokens})
			}
		}
	}
	q.Spool, err = vectors.Collect(ctx, e.Dim(), docs, &vectors.SpoolOptions{Float16: float16})
	if err != nil {
		return nil, err
	}
	if q.truncated > 0 {
		a.warn("%s of %s cut at %s, the most that the model takes: shorter questions, or several, lose nothing", out.Count(q.truncated), out.Plural(len(list), "query was", "queries were"), out.Plural(e.Config().Query.Length, "token"))
	}
	return q, nil
}

var errEmptyQuery = errors.New("an empty query finds nothing")
