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
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/vectors"
)

// textsReport says what encoding texts came to.
type textsReport struct {
	Texts   int `json:"texts"`
	Resumed int `json:"resumed"` // of these, encoded by an earlier run
	Equal   int `json:"equal"`   // equal to one before them, whose vectors they share
	// Of those that were encoded now.
	Empty     int     `json:"empty"`
	Truncated int     `json:"truncated"`
	Dropped   int64   `json:"dropped_tokens"` // that were cut off
	Tokens    int64   `json:"tokens"`
	Skipped   int64   `json:"skipped_tokens"` // of these, without vectors: punctuation
	Seconds   float64 `json:"seconds"`
	// Streamed: they were encoded while the index took them; Seconds is what reading them
	// and making ids of them took.
	Streamed bool `json:"streamed,omitempty"`
	// PassedOver are files of folders that are not read; PassedFiles are the first of them.
	PassedOver  int                 `json:"passed_over,omitempty"`
	PassedFiles []folder.PassedFile `json:"passed_over_files,omitempty"`
	added       bool                // to an index that was there
}

// line reads like: texts: 5,183 encoded (12 cut, 0 empty), 1,389,000 tokens in 39s, 35.6k a second.
func (r *textsReport) line(b *bytes.Buffer) {
	r.counts(b)
	if r.Skipped > 0 {
		fmt.Fprintf(b, "       %s of punctuation, without vectors\n", out.Plural(r.Skipped, "token is", "tokens are"))
	}
}

func (r *textsReport) counts(b *bytes.Buffer) {
	fmt.Fprintf(b, "texts: %s encoded (%s cut, %s empty)", out.Count(r.Texts-r.Resumed), out.Count(r.Truncated), out.Count(r.Empty))
	if r.Resumed > 0 {
		fmt.Fprintf(b, ", %s before", out.Count(r.Resumed))
	}
	if r.Equal > 0 {
		fmt.Fprintf(b, ", %s equal to others", out.Count(r.Equal))
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
	// path is the file, which stays; "": temporary, which stays too if the run fails or is interrupted,
	// so that the same command goes on.
	path, temporary string
	shared          bool   // others may use the temporary file at the same time: then there is none
	waits           bool   // the temporary file is needed after it was used: end removes it
	left            string // the file that end removes
	vectors         string // a file for the vectors alone, beside the temporary one; "": they are in that
	matrix          string // what is made of that file
	float32         bool   // whole numbers, not halves
	// admit, where set, refuses documents that cannot be stored with those that are there.
	admit func(ctx context.Context, documents []index.Arrival) error

	known *encode.Survey // nil: nothing is known before

	lost   lostTexts
	passed folder.Passed  // files of folders that are not read
	kinds  map[string]int // of these, by their endings
}

// survey goes through the texts before the first one is encoded, if they can be
// gone through again.
func (s *spooling) survey(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	defer func() { s.texts.PassedOver = nil }() // they are told of once
	if !s.texts.Again() {
		return nil
	}
	return s.whole(func(passages bool) (err error) {
		s.known, err = encode.SurveyTexts(s.admitted(ctx, s.texts.Open(ctx, nil), passages))
		return err
	})
}

// whole calls pass, which goes through all texts, and once more if some of them turn out to
// be passages: then ids of all are held against each other.
func (s *spooling) whole(pass func(passages bool) error) error {
	passages := s.texts.Parted()
	err := pass(passages)
	if errors.Is(err, errPassages) && !passages {
		s.passed, s.kinds = folder.Passed{}, nil // they are found again
		err = pass(true)
	}
	return err
}

var errPassages = errors.New("there are passages")

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

// admitted passes texts on that may be stored: a passage goes on when all of its document are known.
// Without passages, the first one is errPassages.
func (s *spooling) admitted(ctx context.Context, texts iter.Seq2[encode.Text, error], passages bool) iter.Seq2[encode.Text, error] {
	stream := index.NewAdmission()
	return func(yield func(encode.Text, error) bool) {
		var group []encode.Text
		var documents []index.Arrival
		pass := func() bool {
			err := admit(ctx, stream, s.admit, documents, passages)
			if refused := (*index.ArrivalError)(nil); errors.As(err, &refused) {
				err = group[refused.Row].Fault(-1, refused.Err)
			}
			for _, t := range group {
				if !yield(t, err) || err != nil {
					return false
				}
			}
			group, documents = group[:0], documents[:0]
			return true
		}
		for t, err := range texts {
			var p *vectors.Passage
			if err == nil && t.ID != "" {
				if p, _ = vectors.PassageOf(t.ID, t.Payload); p != nil && !passages { // what it is else is said later
					err = errPassages
				}
			}
			if err != nil {
				if pass() {
					yield(t, err)
				}
				return
			}
			document := index.Arrival{ID: t.ID}
			if p != nil {
				document.Parent = p.Of
			}
			if n := len(documents); n > 0 && (p == nil || documents[n-1].Parent != p.Of) && !pass() {
				return
			}
			group, documents = append(group, t), append(documents, document)
			if p == nil && !pass() {
				return
			}
		}
		pass()
	}
}

// admit refuses documents, one or the passages of one, that cannot be stored with those of the stream
// before them, or those that are there.
func admit(ctx context.Context, stream *index.Admission, there func(context.Context, []index.Arrival) error, documents []index.Arrival, passages bool) error {
	if len(documents) == 0 || documents[0].ID == "" {
		return nil
	}
	if passages {
		again, err := stream.Admit(ctx, documents, false)
		if again {
			err = &index.ArrivalError{ID: documents[0].ID, Err: fmt.Errorf("%w: a document or passage before it has this id, or that of its document", index.ErrDuplicateID)}
		}
		if err != nil {
			return err
		}
	}
	if there == nil {
		return nil
	}
	return there(ctx, documents)
}

// run encodes the texts, or what an earlier run left of them, and hands the vectors
// to use. A temporary file goes when that was done.
func (s *spooling) run(ctx context.Context, use func(*encode.Spooled, *textsReport) error) error {
	path := s.path
	if s.known == nil {
		if err := s.survey(ctx); err != nil {
			return err
		}
	}
	var total out.Texts
	if s.known != nil {
		total.Total, total.AllBytes = s.known.Texts, s.known.Bytes
	}
	if path == "" {
		path = s.temporary
	}
	if path != s.temporary {
		s.vectors = ""
	}
	_, serr := os.Lstat(path)
	fresh := path != "" && errors.Is(serr, fs.ErrNotExist)
	begin := s.app.now()
	spool, r, err := s.encode(ctx, path, total)
	if s.shared && path != s.path && errors.Is(err, vectors.ErrSpoolInUse) {
		path = ""
		spool, r, err = s.encode(ctx, path, total)
	}
	if err != nil {
		return s.stopped(path, fresh, r, err)
	}
	if r.Resumed > 0 {
		s.app.logger().Info("texts were encoded before", "texts", r.Resumed, "file", path)
	}
	s.warn(r)
	empty := spool.Tokens() == 0
	err = use(spool, &textsReport{
		Texts: spool.Len(), Resumed: r.Resumed, Equal: r.Equal, Empty: r.Empty, Truncated: r.Truncated, Dropped: r.Dropped,
		Tokens: r.Tokens, Skipped: s.skipped(r), Seconds: s.app.now().Sub(begin).Seconds(),
		PassedOver: s.passed.Kinds, PassedFiles: s.passed.Files,
	})
	// Closed before it is removed, which not every system allows otherwise.
	err = errors.Join(err, spool.Close())
	done := err == nil || errors.Is(err, errOutput)
	switch temporary := s.path == "" && path != ""; {
	case temporary && done && s.waits:
		s.left = path
	case temporary && (done || empty) && spool.Unused() <= spool.Len():
		return errors.Join(err, s.remove(path))
	case temporary && (done || empty):
		s.app.hint("%s stays: it has the vectors of %s that were not among these; remove it if nothing will continue from there",
			path, out.Plural(spool.Unused(), "text", "texts"))
	case path != "" && !done:
		s.app.hint("the vectors of the texts are in %s: repeat the command to continue from there", path)
	}
	return err
}

// end removes a file that waited for what was done with the vectors, or says where it is.
func (s *spooling) end(err error) error {
	switch {
	case s.left == "":
	case err == nil, errors.Is(err, errOutput):
		err = errors.Join(err, s.remove(s.left))
	default:
		s.app.hint("the vectors of the texts are in %s: repeat the command to continue from there", s.left)
	}
	return err
}

// warn tells what is amiss with texts.
func (s *spooling) warn(r *encode.Report) {
	s.lost.warn(s.app, r.Texts+r.Resumed)
	s.warnOfPassed()
	if names := s.texts.Hidden(); names != nil {
		s.app.warn("metadata: the documents' own %s is not kept, since the field that is named for it takes its place (--drop-text keeps a title and a text)",
			strings.Join(names, ", "))
	}
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
func (s *spooling) encode(ctx context.Context, path string, total out.Texts) (*encode.Spooled, *encode.Report, error) {
	s.lost = lostTexts{}
	o := &encode.SpoolOptions{Float32: s.float32, Vectors: s.vectors, Matrix: s.matrix}
	if path == "" {
		o.Vectors, o.Matrix = "", ""
	}
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
	} else {
		texts = s.admitted(ctx, texts, true)
	}
	return encode.Spool(ctx, s.encoder, func(yield func(encode.Text, error) bool) {
		for t, err := range s.looked(texts) {
			total.Bytes += int64(len(t.Title) + len(t.Text))
			if !yield(t, err) {
				return
			}
		}
	}, path, o)
}

// stopped says what becomes of a file that is not complete: it stays, unless nothing was written.
func (s *spooling) stopped(path string, fresh bool, r *encode.Report, err error) error {
	switch {
	case path == "", errors.Is(err, vectors.ErrSpoolInUse):
	case r == nil && errors.Is(err, vectors.ErrSpool):
		return fmt.Errorf("%w. It stays as it is: remove it, or name another file with --spool", err)
	case r == nil:
	case fresh && r.Texts == 0:
		return errors.Join(err, s.remove(path))
	default:
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

// collect goes through the texts, and makes a source of vectors of them.
func (s *spooling) collect(ctx context.Context) (*encode.Collection, *textsReport, error) {
	begin := s.app.now()
	if err := s.prepare(); err != nil {
		return nil, nil, err
	}
	defer func() { s.texts.PassedOver = nil }() // they are told of once
	var c *encode.Collection
	err := s.whole(func(passages bool) (err error) {
		first := true
		s.lost = lostTexts{}
		c, err = encode.NewCollection(ctx, s.encoder, func(ctx context.Context) iter.Seq2[encode.Text, error] {
			texts := s.texts.Open(ctx, s.app.in)
			if !first {
				return texts
			}
			first = false
			return s.looked(s.admitted(ctx, texts, passages))
		})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	r := c.Report()
	s.warn(&r)
	return c, &textsReport{
		Texts: r.Texts, Empty: r.Empty, Truncated: r.Truncated, Dropped: r.Dropped, Tokens: r.Tokens, Skipped: s.skipped(&r),
		Seconds: s.app.now().Sub(begin).Seconds(), Streamed: true, PassedOver: s.passed.Kinds, PassedFiles: s.passed.Files,
	}, nil
}

// skipped is how many tokens have no vectors since the model skips them.
func (s *spooling) skipped(r *encode.Report) int64 {
	if c := s.encoder.Config(); !c.Document.Skip || c.Pool > 0 {
		return 0
	}
	return r.Tokens - r.Vectors
}

// looked notes texts that have none.
func (s *spooling) looked(texts iter.Seq2[encode.Text, error]) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		for t, err := range texts {
			s.lost.look(&t)
			if !yield(t, err) {
				return
			}
		}
	}
}

// use hands the vectors of the texts to use: those of a spool, or of a source that encodes them
// while they are taken; tag stands for the texts then.
func (s *spooling) use(ctx context.Context, stream bool, use func(src vectors.Source, tag string, r *textsReport) error) error {
	if !stream {
		return s.run(ctx, func(src *encode.Spooled, r *textsReport) error { return use(src, "", r) })
	}
	c, r, err := s.collect(ctx)
	if err != nil {
		return err
	}
	return use(c, c.Tag(), r)
}
