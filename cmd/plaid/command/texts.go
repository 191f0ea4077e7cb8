package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/vectors"
)

// textsReport says what encoding texts came to.
type textsReport struct {
	Texts   int `json:"texts"`
	Resumed int `json:"resumed"` // of these, encoded by an earlier run
	// Of those that were encoded now.
	Empty     int     `json:"empty"`
	Truncated int     `json:"truncated"`
	Dropped   int64   `json:"dropped_tokens"` // that were cut off
	Tokens    int64   `json:"tokens"`
	Seconds   float64 `json:"seconds"`
	// Streamed: they were encoded while the index took them; Seconds is what reading them
	// and making ids of them took.
	Streamed bool `json:"streamed,omitempty"`
	// PassedOver are files of folders that are not read, of which PassedFiles are the first.
	PassedOver  int                 `json:"passed_over,omitempty"`
	PassedFiles []folder.PassedFile `json:"passed_over_files,omitempty"`
	added       bool                // to an index that was there
}

// line reads like: texts: 5,183 encoded (12 cut, 0 empty), 1,389,000 tokens in 39s, 35.6k a second.
func (r *textsReport) line(b *bytes.Buffer) {
	fmt.Fprintf(b, "texts: %s encoded (%s cut, %s empty)", out.Count(r.Texts-r.Resumed), out.Count(r.Truncated), out.Count(r.Empty))
	if r.Resumed > 0 {
		fmt.Fprintf(b, ", %s before", out.Count(r.Resumed))
	}
	fmt.Fprintf(b, ", %s", out.Plural(r.Tokens, "token"))
	if r.Streamed {
		if r.added {
			b.WriteString(", while they were added\n")
		} else {
			b.WriteString(", while the index was built\n")
		}
		return
	}
	fmt.Fprintf(b, " in %s", out.Seconds(r.Seconds))
	if r.Seconds > 0 && r.Tokens > 0 {
		fmt.Fprintf(b, ", %s a second", out.Rate(float64(r.Tokens)/r.Seconds))
	}
	b.WriteByte('\n')
}

// spooling is one encoding of texts into a file.
type spooling struct {
	app     *app
	encoder *encode.Encoder
	texts   *flags.Texts
	// path is the file, which stays; "": temporary, and what is used then while the
	// texts can be gone through again, so that an interrupted run can go on.
	path, temporary string
	vectors         string // a file for the vectors alone, beside the temporary one; "": they are in that
	matrix          string // what is made of that file
	float32         bool   // whole numbers, not halves

	known *encode.Survey // nil: nothing is known before

	lost   lostTexts
	passed folder.Passed  // files of folders that are not read
	kinds  map[string]int // of these, by their endings
}

// survey goes through the texts before the first one is encoded, if they can be
// gone through again, and lets check look at each.
func (s *spooling) survey(ctx context.Context, check func(encode.Text) error) (err error) {
	if err := s.prepare(); err != nil {
		return err
	}
	defer func() { s.texts.PassedOver = nil }() // they are told of once
	if s.texts.Again() {
		s.known, err = encode.SurveyTexts(checked(s.texts.Open(ctx, nil), check))
	}
	return s.inTexts(err)
}

// prepare lets the texts be read for the encoder, and what is not read be counted.
func (s *spooling) prepare() error {
	model := s.encoder.Config()
	s.texts.Model = &model
	s.texts.PassedOver = func(name string) {
		if s.kinds == nil {
			s.kinds = map[string]int{}
		}
		s.kinds[strings.ToLower(filepath.Ext(name))]++
		s.passed.Kinds++
		s.passed.Name(name, "no kind of text by its name")
	}
	return s.texts.CheckModel()
}

func checked(texts iter.Seq2[encode.Text, error], check func(encode.Text) error) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		for t, err := range texts {
			if err == nil && check != nil {
				err = check(t)
			}
			if !yield(t, err) || err != nil {
				return
			}
		}
	}
}

// run encodes the texts, or what an earlier run left of them, and hands the vectors
// to use. A temporary file goes when that was done.
func (s *spooling) run(ctx context.Context, use func(*vectors.Spool, *textsReport) error) error {
	path, tag := s.path, "texts that were read once"
	if s.known == nil {
		if err := s.survey(ctx, nil); err != nil {
			return err
		}
	}
	var total out.Texts
	if s.known != nil {
		total.Total, total.AllBytes, tag = s.known.Texts, s.known.Bytes, s.known.Sum
		if path == "" {
			path = s.temporary
		}
	}
	if path != s.temporary {
		s.vectors = ""
	}
	_, serr := os.Lstat(path)
	fresh := path != "" && errors.Is(serr, fs.ErrNotExist)
	begin := s.app.now()
	spool, r, err := s.encode(ctx, path, tag, total)
	if err != nil {
		return s.stopped(path, fresh, r, s.inTexts(err))
	}
	if r.Resumed > 0 {
		s.app.logger().Info("texts were encoded before", "texts", r.Resumed, "file", path)
	}
	s.warn(r)
	empty := spool.Tokens() == 0
	err = use(spool, &textsReport{
		Texts: spool.Len(), Resumed: r.Resumed, Empty: r.Empty, Truncated: r.Truncated, Dropped: r.Dropped,
		Tokens: r.Tokens, Seconds: s.app.now().Sub(begin).Seconds(), PassedOver: s.passed.Kinds, PassedFiles: s.passed.Files,
	})
	// Closed before it is removed, which not every system allows otherwise.
	err = errors.Join(err, spool.Close())
	done := err == nil || errors.Is(err, errOutput)
	switch temporary := s.path == "" && path != ""; {
	case temporary && (done || empty):
		return errors.Join(err, s.remove(path))
	case path != "" && !done:
		s.app.hint("the vectors of the texts are in %s: repeat the command to continue from there", path)
	}
	return err
}

// warn tells what is amiss with texts.
func (s *spooling) warn(r *encode.Report) {
	s.lost.warn(s.app, r.Texts+r.Resumed)
	s.warnOfPassed()
	if r.Truncated > 0 {
		s.app.warn("%s of %s cut at %s, %s dropped (--document-length, --window)", out.Count(r.Truncated),
			out.Plural(r.Texts, "text was", "texts were"),
			out.Plural(s.encoder.Config().Document.Length, "token"), out.Plural(r.Dropped, "token was", "tokens were"))
	}
	s.app.warnUnknown(r)
}

// warnUnknown tells of texts that the model makes nothing of.
func (a *app) warnUnknown(r *encode.Report) {
	if r.Unknown > 0 {
		a.warn("%s of %s mostly unknown to the model, which was made for another script, or cuts no words out of theirs: "+
			"searches by vectors hardly find them", out.Count(r.Unknown), out.Plural(r.Texts, "text is", "texts are"))
	}
}

// lostTexts are documents whose objects say something, and have no text.
type lostTexts struct {
	n     int
	first string // its id
	has   []string
	row   int
	rows  int
}

func (l *lostTexts) look(t *encode.Text) {
	l.rows++
	if t.Full() != "" {
		return
	}
	if l.n++; l.n > 1 {
		return
	}
	l.first, l.row = t.ID, l.rows-1
	_ = jsontext.Members(t.Payload, func(key string, _ json.RawMessage) error { // what it is not is no object
		if key != "text" {
			l.has = append(l.has, key)
		}
		return nil
	})
}

// warn tells of them, with an example.
func (l *lostTexts) warn(a *app, all int) {
	if l.n == 0 {
		return
	}
	name := "document " + strconv.Itoa(l.row)
	if l.first != "" {
		name = "document " + out.Quoted(l.first)
	}
	if len(l.has) > 0 {
		name += ", which has " + out.Printable(strings.Join(l.has, ", "), 200) + ","
	}
	a.warn("%s no text and will not be found: %s is the first (--text-field says which field has it)",
		out.Plural(l.n, fmt.Sprintf("of %s documents has", out.Count(all)), fmt.Sprintf("of %s documents have", out.Count(all))), name)
}

// warnOfPassed tells which files of folders were not read.
func (s *spooling) warnOfPassed() {
	total, more := 0, ""
	var kinds []string
	for _, suffix := range slices.Sorted(maps.Keys(s.kinds)) {
		total += s.kinds[suffix]
		kinds = append(kinds, fmt.Sprintf("%d %s", s.kinds[suffix], cmp.Or(suffix, "without an ending")))
		switch suffix {
		case ".pdf":
			more += "; pdftotext makes text of PDFs"
		case ".parquet", ".arrow":
			more += "; the program of the formats module reads " + suffix + " (docs/formats.md)"
		}
	}
	if total > 0 {
		s.app.warn("%s passed over (%s): %s are read%s", out.Plural(total, "file was", "files were"), out.Printable(strings.Join(kinds, ", "), 200), encode.Kinds, more)
	}
	s.app.logPassed(total, s.passed.Files)
}

// logPassed names the first files that were not read.
func (a *app) logPassed(total int, named []folder.PassedFile) {
	for _, f := range named {
		a.logger().Info("passed over", "file", f.Path, "why", f.Why)
	}
	if more := total - len(named); more > 0 && len(named) > 0 {
		a.logger().Info("passed over", "more", more)
	}
}

// remove removes the file, and what has the vectors if that is still there.
func (s *spooling) remove(path string) error {
	var all error
	for _, name := range []string{path, s.vectors} {
		if name == "" {
			continue
		}
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// encode writes the vectors of the texts to a file, and shows how far it is of the total.
func (s *spooling) encode(ctx context.Context, path, tag string, total out.Texts) (*vectors.Spool, *encode.Report, error) {
	o := &encode.SpoolOptions{Tag: tag, Float32: s.float32, Vectors: s.vectors, Matrix: s.matrix}
	if !s.app.quiet {
		show := out.TextProgress(s.app.console, s.app.now)
		o.Progress = func(r encode.Report) {
			total.Done, total.Tokens = r.Resumed+r.Texts, r.Tokens
			show(total)
		}
	}
	texts := s.texts.Open(ctx, s.app.in)
	if s.known != nil {
		texts = s.known.Same(texts)
	}
	return encode.Spool(ctx, s.encoder, func(yield func(encode.Text, error) bool) {
		for t, err := range texts {
			total.Bytes += int64(len(t.Title) + len(t.Text))
			s.lost.look(&t)
			if !yield(t, err) {
				return
			}
		}
	}, path, o)
}

// stopped says what becomes of a file that is not complete.
func (s *spooling) stopped(path string, fresh bool, r *encode.Report, err error) error {
	switch {
	case path == "", errors.Is(err, vectors.ErrSpoolInUse):
	case errors.Is(err, vectors.ErrSpool):
		return fmt.Errorf("%w. It is of other texts, of another model, or no spool: remove it, or name another file with --spool", err)
	case fresh && (r == nil || r.Texts == 0 || errors.Is(err, vectors.ErrChanged)): // what it has is of texts that are no more
		err = errors.Join(err, s.remove(path))
	case errors.Is(err, vectors.ErrChanged):
	case r != nil:
		s.app.hint("what was encoded is in %s: repeat the command to continue from there", path)
	}
	return err
}

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
	if err := s.prepare(); err != nil {
		return nil, nil, err
	}
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
		Texts: r.Texts, Empty: r.Empty, Truncated: r.Truncated, Dropped: r.Dropped, Tokens: r.Tokens,
		Seconds: s.app.now().Sub(begin).Seconds(), Streamed: true, PassedOver: s.passed.Kinds, PassedFiles: s.passed.Files,
	}, nil
}

// use hands the vectors of the texts to use: those of a spool, or of a source that encodes them
// while they are taken; tag stands for the texts then.
func (s *spooling) use(ctx context.Context, stream bool, use func(src vectors.Source, tag string, r *textsReport) error) error {
	if !stream {
		return s.run(ctx, func(src *vectors.Spool, r *textsReport) error { return use(src, "", r) })
	}
	c, r, err := s.collect(ctx, nil)
	if err != nil {
		return err
	}
	return s.inTexts(use(c, c.Tag(), r))
}

// inTexts names the file of an error of a text.
func (s *spooling) inTexts(err error) error {
	if te := (*encode.TextError)(nil); errors.As(err, &te) && te.Path == "" {
		if same := (*encode.SameIDError)(nil); errors.As(te.Err, &same) {
			path, n := s.texts.Place(same.First)
			te.Err = fmt.Errorf("text %d of %s has this id too", n+1, path)
		}
		te.Path, te.Row = s.texts.Place(te.Row)
	}
	return err
}
