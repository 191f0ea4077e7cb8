package command

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/folder"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// textsReport reports on the encoding of texts.
type textsReport struct {
	Texts int `json:"texts"`
	// Resumed is the number of texts that an earlier run had encoded.
	Resumed int `json:"resumed"`
	// Equal is the number of texts that equal an earlier one, whose vectors they share.
	Equal int `json:"equal"`
	// Empty and the following fields concern the texts that this run has encoded.
	Empty     int `json:"empty"`
	Truncated int `json:"truncated"`
	// Dropped is the number of tokens that were cut off.
	Dropped int64 `json:"dropped_tokens"`
	Tokens  int64 `json:"tokens"`
	// Skipped is the number of tokens without vectors, such as punctuation.
	Skipped int64   `json:"skipped_tokens"`
	Seconds float64 `json:"seconds"`
	// Streamed reports that texts were encoded while they were read, or while the index took their
	// vectors. Seconds is then the time of reading, which includes ids and, if vectors stay on a
	// device, the vectors.
	Streamed bool `json:"streamed,omitempty"`
	// PassedOver counts the files of folders that are not read; PassedFiles are the first of them.
	PassedOver  int                  `json:"passed_over,omitempty"`
	PassedFiles []folder.SkippedFile `json:"passed_over_files,omitempty"`
	// added reports that the texts went into an existing index.
	added bool
}

// writeLine writes: texts: 5,183 encoded (12 cut, 0 empty), 1,389,000 tokens in 39s, 35.6k a
// second.
func (r *textsReport) writeLine(b *bytes.Buffer) {
	r.writeCounts(b)
	if r.Skipped > 0 {
		fmt.Fprintf(b, "       %s of punctuation, without vectors\n", out.Plural(r.Skipped, "token is", "tokens are"))
	}
}

// writeCounts writes the first line of writeLine.
func (r *textsReport) writeCounts(b *bytes.Buffer) {
	fmt.Fprintf(b, "texts: %s encoded (%s cut, %s empty)", out.Count(r.Texts-r.Resumed), out.Count(r.Truncated),
		out.Count(r.Empty))
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

// tokensWithoutVectors returns the number of tokens that the model skips.
func (s *spooling) tokensWithoutVectors(r *encode.Report) int64 {
	if c := s.encoder.Config(); !c.Document.Skip && len(c.Keep) == 0 || c.Pools() {
		return 0
	}
	return r.Tokens - r.Vectors
}

// report returns the report on a number of texts whose encoding started at begin.
func (s *spooling) report(texts int, r *encode.Report, begin time.Time) *textsReport {
	return &textsReport{
		Texts:       texts,
		Resumed:     r.Resumed,
		Equal:       r.Equal,
		Empty:       r.Empty,
		Truncated:   r.Truncated,
		Dropped:     r.Dropped,
		Tokens:      r.Tokens,
		Skipped:     s.tokensWithoutVectors(r),
		Seconds:     s.app.now().Sub(begin).Seconds(),
		PassedOver:  s.skipped.Kinds,
		PassedFiles: s.skipped.Files,
	}
}

// warnOfTexts prints warnings about the texts that were encoded.
func (s *spooling) warnOfTexts(r *encode.Report) {
	s.textless.warnOf(s.app, r.Texts+r.Resumed)
	s.warnOfSkippedFiles()
	if names := s.texts.Hidden(); names != nil {
		s.app.printWarning("metadata: the documents' own %s is not stored, since the field that a flag names takes "+
			"its place (--drop-text keeps a title and a text)", strings.Join(names, ", "))
	}
	if r.Truncated > 0 {
		s.app.printWarning("%s of %s cut at %s, %s dropped (--document-length, --window)", out.Count(r.Truncated),
			out.Plural(r.Texts, "text was", "texts were"),
			out.Plural(s.encoder.Config().Document.Length, "token"), out.Plural(r.Dropped, "token was", "tokens were"))
	}
	s.app.warnUnknown(r)
}

// warnUnknown warns of texts whose words the model does not know.
func (a *app) warnUnknown(r *encode.Report) {
	if r.Unknown > 0 {
		a.printWarning("%s of %s mostly unknown to the model, which was made for another script, or does not "+
			"split theirs into words: searches by vectors hardly find them",
			out.Count(r.Unknown), out.Plural(r.Texts, "text is", "texts are"))
	}
}

// textlessDocuments counts documents without a text.
type textlessDocuments struct {
	count int
	// firstID is the id of the first such document, firstRow its number among all documents, and
	// fields are the names of its fields.
	firstID  string
	firstRow int
	fields   []string
	// total is the number of all documents.
	total int
}

// countIfEmpty counts a document.
func (l *textlessDocuments) countIfEmpty(t *encode.Text) {
	l.total++
	if t.Full() != "" {
		return
	}
	if l.count++; l.count > 1 {
		return
	}
	l.firstID, l.firstRow = t.ID, l.total-1
	_ = jsontext.Members(t.Payload, func(key string, _ json.RawMessage) error { // never fails: a payload is an object
		if key != "text" {
			l.fields = append(l.fields, key)
		}
		return nil
	})
}

// warnOf warns of the documents, with an example; total is the number of all documents.
func (l *textlessDocuments) warnOf(a *app, total int) {
	if l.count == 0 {
		return
	}
	example := "document " + strconv.Itoa(l.firstRow)
	if l.firstID != "" {
		example = "document " + out.Quoted(l.firstID)
	}
	if len(l.fields) > 0 {
		example += ", which has " + out.Printable(strings.Join(l.fields, ", "), 200) + ","
	}
	a.printWarning("%s no text and will not be found: %s is the first (--text-field names the field with the text)",
		out.Plural(l.count, fmt.Sprintf("of %s documents has", out.Count(total)),
			fmt.Sprintf("of %s documents have", out.Count(total))), example)
}

// warnOfSkippedFiles warns of the files of folders that are not read.
func (s *spooling) warnOfSkippedFiles() {
	advice := ""
	var kinds []string
	for _, suffix := range slices.Sorted(maps.Keys(s.skippedEndings)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", s.skippedEndings[suffix], cmp.Or(suffix, "without an ending")))
		switch suffix {
		case ".pdf":
			advice += "; pdftotext makes text of PDFs"
		case ".parquet", ".arrow":
			advice += "; the program of the formats module reads " + suffix + " (docs/formats.md)"
		}
	}
	total := s.skipped.Kinds
	if total > 0 {
		s.app.printWarning("%s skipped (%s): %s are read%s", out.Plural(total, "file was", "files were"),
			out.Printable(strings.Join(kinds, ", "), 200), encode.Kinds, advice)
	}
	s.app.logSkipped(total, s.skipped.Files)
}

// logSkipped logs the names of the first files that are not read.
func (a *app) logSkipped(total int, named []folder.SkippedFile) {
	for _, f := range named {
		a.logger().Info("passed over", "file", f.Path, "why", f.Why)
	}
	if unnamed := total - len(named); unnamed > 0 && len(named) > 0 {
		a.logger().Info("passed over", "more", unnamed)
	}
}

// countTextless counts the documents without a text while it passes the texts on.
func (s *spooling) countTextless(texts iter.Seq2[encode.Text, error]) iter.Seq2[encode.Text, error] {
	return func(yield func(encode.Text, error) bool) {
		for t, err := range texts {
			s.textless.countIfEmpty(&t)
			if !yield(t, err) {
				return
			}
		}
	}
}
