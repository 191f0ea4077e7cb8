package command

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"strings"

	"github.com/plaid-ir/plaid/encode"
)

// streams says that texts are encoded while an index takes them, whose vectors are pooled so.
// On a device that takes less time than to write their vectors and to read them again. What a
// spool has already is used.
func (s *spooling) streams(pool int) bool {
	c := s.encoder.Config()
	if s.path != "" || c.Backend != encode.Device || c.Pool > 0 || pool > 1 || !s.texts.Again() {
		return false
	}
	_, err := os.Lstat(s.temporary)
	return errors.Is(err, fs.ErrNotExist)
}

// collect goes through the texts, lets check look at each, and makes a source of vectors of them.
func (s *spooling) collect(ctx context.Context, check func(encode.Text) error) (*encode.Collection, *textsReport, error) {
	begin := s.app.now()
	s.prepare()
	defer func() { s.texts.PassedOver = nil }() // they are told of once
	first := true
	c, err := encode.NewCollection(ctx, s.encoder, func(ctx context.Context) iter.Seq2[encode.Text, error] {
		texts := s.texts.Open(ctx, s.app.in)
		if first {
			first = false
			return checked(texts, func(t encode.Text) error {
				s.lost.look(&t)
				if check == nil {
					return nil
				}
				return check(t)
			})
		}
		return texts
	})
	if err != nil {
		return nil, nil, s.inTexts(err)
	}
	r := c.Report()
	s.warn(&r)
	return c, &textsReport{
		Texts: r.Texts, Empty: r.Empty, Truncated: r.Truncated, Tokens: r.Tokens, Seconds: s.app.now().Sub(begin).Seconds(), Streamed: true,
	}, nil
}

// stream hands such a source to use.
func (s *spooling) stream(ctx context.Context, use func(*encode.Collection, *textsReport) error) error {
	c, r, err := s.collect(ctx, nil)
	if err != nil {
		return err
	}
	return s.inTexts(use(c, r))
}

// inTexts names the files of an error of a text.
func (s *spooling) inTexts(err error) error {
	if te := (*encode.TextError)(nil); errors.As(err, &te) && te.Path == "" {
		te.Path = strings.Join(s.texts.Paths, ", ")
	}
	return err
}
