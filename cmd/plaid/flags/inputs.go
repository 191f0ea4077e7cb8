package flags

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/vectors"
)

// Documents holds the flags that name files of documents. Each flag may be given several times: the
// collections are read one after another.
type Documents struct {
	Vectors []string
	// Model says what made the vectors, as in --vectors-model.
	Model                              string
	lengthFiles, idFiles, payloadFiles []string
}

// Register adds the flags of documents that go into an index.
func (d *Documents) Register(f *pflag.FlagSet) {
	d.RegisterScored(f)
	f.StringVar(&d.Model, "vectors-model", "",
		"the model that made the vectors: a "+ModelFile+
			" of plaid encode, a fingerprint, or a `NAME`; it must be that of the index")
}

// RegisterPayload adds the flag for metadata that is stored with the documents.
func (d *Documents) RegisterPayload(f *pflag.FlagSet) {
	f.StringArrayVar(&d.payloadFiles, "metadata", nil,
		"JSON-lines `FILE` with metadata to store with the documents, matched by _id or id")
}

// Identity returns a digest of the paths, sizes and times of the files: it changes when one of them
// is written. It returns "" if one of them is missing or is not a regular file.
func (d *Documents) Identity() (string, error) {
	sum := sha256.New()
	for _, files := range [][]string{d.Vectors, d.lengthFiles, d.idFiles, d.payloadFiles} {
		fmt.Fprintln(sum, len(files))
		for _, name := range files {
			path, err := filepath.Abs(name)
			if err != nil {
				return "", err
			}
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() {
				return "", nil // opening the file reports the error
			}
			fmt.Fprintf(sum, "%q %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// CheckTexts returns an error for flags that do not go together: documents are either texts to
// encode or vectors.
func (d *Documents) CheckTexts(t *Texts, e *Encoder) error {
	hasVectorFlag := len(d.Vectors) > 0 || d.Model != "" || d.lengthFiles != nil || d.idFiles != nil ||
		d.payloadFiles != nil
	switch {
	case t.Given() && d.payloadFiles != nil && len(d.Vectors) == 0:
		return Usagef("--metadata goes with --vectors: with --text the other fields of each object, or columns of " +
			"each row, are its metadata")
	case t.Given() && hasVectorFlag:
		return Usagef("--text does not go with --vectors and the flags that belong to it")
	case !t.Given() && cmp.Or(e.FirstGiven(), t.givenTextFlag()) != "":
		return Usagef("--%s goes with --text", cmp.Or(e.FirstGiven(), t.givenTextFlag()))
	case !t.Given() && len(d.Vectors) == 0:
		return Usagef("--text or --vectors is missing")
	}
	return t.Check()
}

// RegisterOriginals adds the flags of the documents that an index was made from; what says in the
// help how they are used.
func (d *Documents) RegisterOriginals(f *pflag.FlagSet, use string) {
	f.StringArrayVar(&d.Vectors, "vectors", nil,
		"`FILE` of the vectors that the index was made from: "+use+"; may be repeated")
	d.registerCompanions(f)
}

// RegisterScored adds the flags of documents that are scored without an index.
func (d *Documents) RegisterScored(f *pflag.FlagSet) {
	f.StringArrayVar(&d.Vectors, "vectors", nil,
		"`FILE` of token vectors: .npy [tokens, dim] or [docs, rows, dim], .npz, .safetensors, .jsonl, - for "+
			"stdin; may be repeated")
	d.registerCompanions(f)
}

// registerCompanions adds the flags of the files that belong to the vectors.
func (d *Documents) registerCompanions(f *pflag.FlagSet) {
	f.StringArrayVar(&d.lengthFiles, "lengths", nil,
		"`FILE` with the number of tokens of each document: .npy, .json or text")
	f.StringArrayVar(&d.idFiles, "ids", nil, "`FILE` with one document id in each line (default: row numbers from 0)")
}

// Given reports whether any of the flags is set.
func (d *Documents) Given() bool {
	return len(d.Vectors)+len(d.lengthFiles)+len(d.idFiles)+len(d.payloadFiles) > 0
}

// Open opens the collections, to be read one after another. It calls warn for metadata that matches
// no document.
func (d *Documents) Open(
	ctx context.Context, stdin io.Reader, warn func(string, ...any),
) (_ vectors.Source, err error) {
	collections := len(d.Vectors)
	if firstStdin := slices.Index(d.Vectors, "-"); firstStdin >= 0 && slices.Contains(d.Vectors[firstStdin+1:], "-") {
		return nil, Usagef("stdin (-) can be read only once")
	}
	if collections == 0 {
		return nil, Usagef("--vectors is missing")
	}
	for _, companion := range []struct {
		flag  string
		files *[]string
	}{{"lengths", &d.lengthFiles}, {"ids", &d.idFiles}, {"metadata", &d.payloadFiles}} {
		switch len(*companion.files) {
		case collections:
		case 0:
			*companion.files = make([]string, collections)
		default:
			return nil, Usagef("%d --%s for %d --vectors: give one for each, or '' for none",
				len(*companion.files), companion.flag, collections)
		}
	}
	var sources []vectors.Source
	defer func() {
		if err != nil {
			for _, s := range sources {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	for i := range collections {
		s, err := openVectors(ctx, stdin, vectors.Files{
			Vectors: d.Vectors[i],
			Lengths: d.lengthFiles[i],
			IDs:     d.idFiles[i],
			Payload: d.payloadFiles[i],
			Notice:  func(text string) { warn("%s", text) },
		})
		if errors.Is(err, vectors.ErrNoLengths) {
			return nil, Usagef("%w; --lengths FILE says it", err)
		}
		if err != nil {
			return nil, withTextHint(d.Vectors[i], err)
		}
		sources = append(sources, s)
	}
	if collections == 1 {
		return sources[0], nil
	}
	return vectors.Concat(sources...)
}

// WithFileNames puts the names of the files before an error that concerns all of them.
func (d *Documents) WithFileNames(err error) error { return withFileNames(d.Vectors, err) }

// withFileNames puts the names of files before an error that says that they hold nothing to index,
// which concerns all of them.
func withFileNames(paths []string, err error) error {
	if errors.Is(err, index.ErrNoDocuments) || errors.Is(err, index.ErrNoTokens) {
		return fmt.Errorf("%s: %w", joinFileNames(paths), err)
	}
	return err
}

// joinFileNames lists files as messages name them.
func joinFileNames(paths []string) string {
	names := slices.Clone(paths)
	if i := slices.Index(names, "-"); i >= 0 {
		names[i] = "stdin"
	}
	return strings.Join(names, ", ")
}

// Queries holds the flags that name queries: files of vectors, or questions as texts and a model
// that encodes them.
type Queries struct {
	Vectors string
	// Questions is a file of texts.
	Questions string
	Encoder   Encoder
	// AllowBoth allows questions as texts together with vectors: the questions are then searched by
	// their words.
	AllowBoth bool

	lengths, ids string
	// textless reports that the command takes no questions as texts.
	textless bool
}

// Register adds the flags to f.
func (q *Queries) Register(f *pflag.FlagSet) {
	f.StringVar(&q.Questions, "questions", "",
		"`FILE` of questions: .jsonl, .csv, .tsv or .txt (one question in each line), each also as .gz, .zst or "+
			".xz, - for stdin, which is .jsonl or .txt")
	q.Encoder.RegisterQueries(f)
	q.RegisterVectors(f)
}

// RegisterVectors adds the flags of queries that are vectors.
func (q *Queries) RegisterVectors(f *pflag.FlagSet) {
	q.textless = f.Lookup("questions") == nil
	f.StringVar(&q.Vectors, "queries", "", "`FILE` of query token vectors: .npy [tokens, dim] (one query, or "+
		"several with --query-lengths) or [queries, rows, dim], .npz, .safetensors, .jsonl, - for stdin")
	f.StringVar(&q.lengths, "query-lengths", "", "`FILE` with the number of tokens of each query: .npy, .json or text")
	f.StringVar(&q.ids, "query-ids", "", "`FILE` with one query id in each line (default: row numbers from 0)")
}

// AreTexts reports whether the queries are texts to encode. questions are the arguments of the
// command, nil if it takes none. It returns an error for flags that do not go together, and for an
// empty question.
func (q *Queries) AreTexts(questions []string) (bool, error) {
	hasQuestions := len(questions) > 0 || q.Questions != ""
	texts := hasQuestions && q.Vectors == ""
	switch {
	case len(questions) > 0 && q.Questions != "":
		return false, Usagef("give questions as arguments or with --questions, not both")
	case hasQuestions && q.Vectors != "" && !q.AllowBoth:
		return false, Usagef("--queries is a file of vectors: questions together with it need --hybrid")
	case q.Vectors == "-" && q.Questions == "-":
		return false, Usagef("stdin (-) can be read only once")
	case texts && (q.lengths != "" || q.ids != ""):
		return false, Usagef("--query-lengths and --query-ids go with --queries")
	case !texts && q.Encoder.FirstGiven() != "":
		return false, Usagef("--%s goes with questions as texts", q.Encoder.FirstGiven())
	case !texts && q.Vectors == "":
		return false, Usagef("%s", q.missingMessage(questions))
	}
	for _, text := range questions {
		switch strings.TrimSpace(text) {
		case "":
			return false, Usagef("an empty question finds nothing")
		case "-":
			return false, Usagef("\"-\" is not a question: --questions - reads stdin")
		}
	}
	return texts, nil
}

// missingMessage says which flags and arguments name queries, for a command that was given none.
func (q *Queries) missingMessage(questions []string) string {
	switch {
	case q.textless:
		return "--queries is missing: the file of the query vectors"
	case questions == nil:
		return "which queries? give --questions, a file of texts, or --queries, a file of vectors"
	}
	return "which queries? give questions as arguments, --questions, a file of texts, or --queries, a file of vectors"
}

// Name returns the name of the queries in messages.
func (q *Queries) Name() string {
	switch {
	case q.Vectors == "-", q.Vectors == "" && q.Questions == "-":
		return "stdin"
	case q.Vectors != "":
		return q.Vectors
	case q.Questions != "":
		return q.Questions
	}
	return "questions"
}

// Texts returns the questions: those of the file of --questions, or else the arguments.
func (q *Queries) Texts(ctx context.Context, questions []string, stdin io.Reader) iter.Seq2[encode.Text, error] {
	if q.Questions == "" {
		return func(yield func(encode.Text, error) bool) {
			for _, text := range questions {
				if !yield(encode.Text{Text: text}, nil) {
					return
				}
			}
		}
	}
	t := Texts{Paths: []string{q.Questions}}
	if q.Questions != "-" {
		return t.readFiles(ctx, stdin, nil)
	}
	return func(yield func(encode.Text, error) bool) {
		packed, err := files.Unpack(files.ContextReader(ctx, stdin), "stdin")
		var r *bufio.Reader
		if err == nil {
			r, err = files.SkipByteOrderMark(packed)
		}
		if err != nil {
			yield(encode.Text{}, &encode.TextError{Path: "stdin", Row: -1, Err: err})
			return
		}
		if first, _ := r.Peek(1); len(first) == 1 && first[0] != '{' {
			t.format = string(encode.FormatLines)
		}
		t.readFiles(ctx, r, nil)(yield)
	}
}

// Open opens queries that are vectors. maxQueryTokens, if not nil, returns the number of tokens of
// the longest query that the model of the index makes, or 0 if that is unknown.
func (q *Queries) Open(ctx context.Context, stdin io.Reader, maxQueryTokens func() int) (vectors.Source, error) {
	s, err := openVectors(ctx, stdin, vectors.Files{
		Vectors:     q.Vectors,
		Queries:     true,
		QueryLength: maxQueryTokens,
		Lengths:     q.lengths,
		IDs:         q.ids,
	})
	if errors.Is(err, vectors.ErrNoLengths) {
		return nil, Usagef("%w; --query-lengths FILE says it", err)
	}
	return s, withTextHint(q.Vectors, err)
}

// withTextHint adds to an error about a JSON-lines file of vectors how its lines must look, since a
// file of texts has the same ending.
func withTextHint(path string, err error) error {
	ext := strings.ToLower(filepath.Ext(path))
	if errors.Is(err, vectors.ErrFormat) && (ext == ".jsonl" || ext == ".ndjson") {
		const example = `{"_id": "a", "vectors": [[0.1, …], …]}`
		return fmt.Errorf("%w; each line needs its token vectors, as in %s; texts go to --text and "+
			"--questions, with --model", err, example)
	}
	return err
}
