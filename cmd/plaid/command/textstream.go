package command

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
)

// streams says that texts are encoded while the index is built of them. On a device that
// takes less time than to write their vectors and to read them again, and what the index
// has of them is where the next command goes on. What a spool has already is used.
func (s *spooling) streams(o *index.BuildOptions) bool {
	c := s.encoder.Config()
	if s.path != "" || c.Backend != encode.Device || c.Pool > 0 || o.Pool > 1 || !s.texts.Again() {
		return false
	}
	_, err := os.Lstat(s.temporary)
	return errors.Is(err, fs.ErrNotExist)
}

// stream goes through the texts and hands them to use as a source of vectors.
func (s *spooling) stream(ctx context.Context, use func(*encode.Collection, *textsReport) error) error {
	begin := s.app.now()
	s.prepare()
	first := true
	c, err := encode.NewCollection(ctx, s.encoder, func(ctx context.Context) iter.Seq2[encode.Text, error] {
		texts := s.texts.Open(ctx, s.app.in)
		if first {
			first = false
			return s.watched(texts)
		}
		return texts
	})
	s.texts.PassedOver = nil
	if err != nil {
		return s.inTexts(err)
	}
	r := c.Report()
	s.warn(&r)
	return s.inTexts(use(c, &textsReport{
		Texts: r.Texts, Empty: r.Empty, Truncated: r.Truncated, Tokens: r.Tokens, Seconds: s.app.now().Sub(begin).Seconds(), Streamed: true,
	}))
}

// watched counts what is lost of texts.
func (s *spooling) watched(texts iter.Seq2[encode.Text, error]) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		for t, err := range texts {
			if err == nil {
				s.lost.look(&t)
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

// inTexts names the files of an error of a text.
func (s *spooling) inTexts(err error) error {
	if te := (*encode.TextError)(nil); errors.As(err, &te) && te.Path == "" {
		te.Path = strings.Join(s.texts.Paths, ", ")
	}
	return err
}
