package flags

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/eval"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/fuse"
	"github.com/plaid-ir/plaid/search/keywords"
)

// Words are the flags of searches by words, alone or fused with those by vectors, and
// of runs to fuse with.
type Words struct {
	// Hybrid: the texts of the queries are searched by their words, too.
	Hybrid bool
	// Text is that of the one query, Texts a file with those of all.
	Text, Texts string
	// Run is the file to fuse with.
	Run string

	expression bool
	alpha      float64
	method     string
	bm25       bm25Value
	set        *pflag.FlagSet
}

// Register adds the flags to a command.
func (w *Words) Register(cmd *cobra.Command) {
	w.set = cmd.Flags()
	f := w.set
	f.BoolVar(&w.Hybrid, "hybrid", false, "search by the words of the questions, too, and fuse what is found")
	f.StringVar(&w.Text, "text-query", "", "`TEXT` to search the payloads for; with one query, both are fused")
	f.StringVar(&w.Texts, "text-queries", "", "`FILE` of texts to search the payloads for, as of --queries-text; with queries of the same ids, both are fused")
	f.StringVar(&w.Run, "fuse", "", "TREC run `FILE` to fuse the results with")
	f.BoolVar(&w.expression, "expression", false, `texts are expressions: "a phrase", begin*, +must, -not; otherwise each is just words`)
	f.Var(Weight(&w.alpha, .75), "alpha", "what vectors count in a fusion, 0 to 1; the other side counts the rest")
	f.Var(Choice(&w.method, fuse.RelativeScore.String(), fuse.RelativeScore.String(), fuse.ReciprocalRank.String()), "fusion", "fuse scores, each side scaled to 0 … 1, or reciprocal ranks")
	w.bm25 = bm25Value(keywords.DefaultBM25)
	f.Var(&w.bm25, "bm25", "parameters of BM25")
	cmd.MarkFlagsMutuallyExclusive("hybrid", "text-query", "text-queries", "fuse")
}

// ByWords tells whether words are searched for.
func (w *Words) ByWords() bool { return w.Hybrid || w.set.Changed("text-query") || w.Texts != "" }

// Expression tells whether texts are expressions rather than words.
func (w *Words) Expression() bool { return w.expression }

// Fuses tells whether results by vectors are fused with others.
func (w *Words) Fuses() bool { return w.ByWords() || w.Run != "" }

// Check finds flags that do not go together. given says that there are queries for the
// vectors, texts that these are texts, and s is the search that they go to.
func (w *Words) Check(given, texts bool, s *Search) error {
	words := w.ByWords()
	switch {
	case w.Hybrid && !(given && texts):
		return Usagef("--hybrid goes with questions as texts; beside vectors give --text-query or --text-queries")
	case w.set.Changed("text-query") && strings.TrimSpace(w.Text) == "":
		return Usagef("--text-query: an empty text finds nothing")
	case w.Run != "" && !given:
		return Usagef("--fuse goes with queries")
	case !words && (w.expression || w.set.Changed("bm25")):
		return Usagef("--expression and --bm25 go with --hybrid, --text-query or --text-queries")
	case !(given && w.Fuses()) && (w.set.Changed("alpha") || w.set.Changed("fusion")):
		return Usagef("--alpha and --fusion go with two sides: --hybrid or --fuse, or queries beside --text-query or --text-queries")
	case !given && s.feedback.Docs+len(s.feedback.Like)+len(s.feedback.Unlike) > 0:
		return Usagef("--feedback, --like and --unlike add to vectors, and a search by words alone has none")
	case w.Fuses() && (s.Candidates != "" || s.mode == "candidates"):
		return Usagef("--mode candidates searches no words; fuse its results with --fuse")
	}
	return nil
}

// Remote adds what a service is asked for with a question as text, as its JSON has it, and
// returns the flags that mean something to it.
func (w *Words) Remote(body map[string]any, question string) (known []string) {
	if w.Hybrid {
		body["text_query"], body["alpha"], body["fusion"] = []string{question}, w.alpha, w.method
		if w.expression {
			body["text_mode"] = "expression"
		}
	}
	return []string{"hybrid", "alpha", "fusion", "expression"}
}

// Query is a query for words without its text.
func (w *Words) Query(k int) keywords.Query {
	q := keywords.Query{K: k, BM25: (*keywords.BM25)(&w.bm25)}
	if w.expression {
		q.Mode = keywords.Expression
	}
	return q
}

// Fuse fuses what was found by vectors and by other means.
func (w *Words) Fuse(vectors, other []search.RankedHit, k int) ([]search.RankedHit, error) {
	method, err := fuse.ParseMethod(w.method)
	if err != nil {
		return nil, err
	}
	return search.FuseRanked(method, w.alpha, k, vectors, other)
}

// ReadRun reads the run of --fuse.
func (w *Words) ReadRun(ctx context.Context) (*eval.Run, error) {
	return files.Parse(ctx, w.Run, eval.ReadRun)
}

// ReadTexts reads the texts of --text-queries, in their order.
func (w *Words) ReadTexts(ctx context.Context, stdin io.Reader) (ids, texts []string, err error) {
	t := Texts{Paths: []string{w.Texts}}
	known := map[string]bool{}
	for text, err := range numbered(t.all(ctx, stdin, nil)) {
		if err != nil {
			return nil, nil, err
		}
		if known[text.ID] {
			return nil, nil, &encode.TextError{Path: w.Texts, Row: len(ids), ID: text.ID, Err: fmt.Errorf("the id comes twice")}
		}
		known[text.ID] = true
		ids, texts = append(ids, text.ID), append(texts, text.Full())
	}
	return ids, texts, nil
}

// bm25Value is a flag of two numbers, K1,B.
type bm25Value keywords.BM25

func (v *bm25Value) Set(s string) error {
	k1, b, ok := strings.Cut(s, ",")
	x, err1 := strconv.ParseFloat(k1, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	if !ok || err1 != nil || err2 != nil || !(x >= 0 && x <= math.MaxFloat32 && y >= 0 && y <= 1) {
		return fmt.Errorf("two numbers k1,b are wanted: k1 not negative, b from 0 to 1")
	}
	v.K1, v.B = x, y
	return nil
}

func (v *bm25Value) String() string { return fmt.Sprintf("%g,%g", v.K1, v.B) }
func (v *bm25Value) Type() string   { return "K1,B" }

// KeywordSettings are the flags that say how text becomes terms.
type KeywordSettings struct {
	settings keywords.Settings
	fields   string
	set      *pflag.FlagSet
}

// Register adds the flags.
func (k *KeywordSettings) Register(f *pflag.FlagSet) {
	k.set = f
	f.Var(Choice(&k.settings.Tokenizer, keywords.Unicode61, keywords.Unicode61, keywords.Trigram), "tokenizer", "find words, or any part of a text of three characters or more")
	f.Var(Choice(&k.settings.Stemmer, "", keywords.English), "stemmer", "find words with other endings")
	f.Var(Choice(&k.settings.StopWords, "", keywords.English), "stop-words", "pass over the most common words")
	f.StringVar(&k.fields, "fields", "", "`LIST` of the JSON fields to search, as title,author.name (default: all values)")
}

// Settings are those of the flags; nil if none is given.
func (k *KeywordSettings) Settings() (*keywords.Settings, error) {
	given := false
	for _, name := range []string{"tokenizer", "stemmer", "stop-words", "fields"} {
		given = given || k.set.Changed(name)
	}
	if !given {
		return nil, nil
	}
	if k.fields != "" {
		k.settings.Fields = strings.Split(k.fields, ",")
	}
	s, err := k.settings.Check()
	if err != nil {
		return nil, UsageError{Err: err}
	}
	return &s, nil
}
