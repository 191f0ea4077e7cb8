package flags

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/search/fuse"
	"github.com/plaid-ir/plaid/search/keywords"
)

// Words holds the flags of searches by the words of questions, alone or fused with a search by
// vectors.
type Words struct {
	// Hybrid reports whether questions are searched by their words, too.
	Hybrid bool

	// mode is "words" or "expression". "" means that vectors are searched.
	mode  string
	alpha float64
	set   *pflag.FlagSet
}

// Register adds the flags to a command.
func (w *Words) Register(cmd *cobra.Command) {
	w.set = cmd.Flags()
	f := w.set
	f.BoolVar(&w.Hybrid, "hybrid", false, "search by vectors and by the words of the questions, and fuse what is "+
		"found; the vectors may come from --queries")
	BareChoice(f, &w.mode, "keywords",
		`search by the words of the questions alone; expression: each question is one, "a phrase", begin*, +must, -not`,
		"words", "expression")
	f.Var(Weight(&w.alpha, fuse.DefaultAlpha), "alpha", "weight of vectors in --hybrid, 0 to 1; words have the rest")
	cmd.MarkFlagsMutuallyExclusive("hybrid", "keywords")
}

// WordsOnly reports whether questions are searched by their words and not by vectors.
func (w *Words) WordsOnly() bool { return w.mode != "" }

// Expression reports whether questions are expressions of search terms rather than plain words.
func (w *Words) Expression() bool { return w.mode == "expression" }

// SearchesWords reports whether questions are searched by their words, alone or fused.
func (w *Words) SearchesWords() bool { return w.Hybrid || w.WordsOnly() }

// Check returns an error for flags that do not go together. questions reports whether the queries
// are given as texts, and s is the search that they go to.
func (w *Words) Check(questions bool, s *Search) error {
	switch {
	case w.SearchesWords() && !questions:
		return Usagef("--hybrid and --keywords need questions: as arguments, or in a file, --questions")
	case w.WordsOnly() && s.Queries.Vectors != "":
		return Usagef("--keywords searches no vectors; --hybrid searches for those of --queries and the words of " +
			"questions")
	case w.WordsOnly() && len(s.feedback.Like)+len(s.feedback.Unlike) > 0:
		return Usagef("--like and --unlike change vectors, and a search by words alone has none")
	case !w.Hybrid && w.set.Changed("alpha"):
		return Usagef("--alpha goes with --hybrid")
	case w.SearchesWords() && s.Candidates != "":
		return Usagef("--candidates scores vectors: it does not go with --hybrid and --keywords")
	}
	return nil
}

// AddToRequest adds the fields for a question to the JSON body of a search that is sent to a
// service. It returns the names of the flags that a service supports.
func (w *Words) AddToRequest(body map[string]any, question string) (supportedFlags []string) {
	if w.Hybrid {
		body["text_query"], body["alpha"] = []string{question}, w.alpha
	}
	return []string{"hybrid", "alpha"}
}

// Query returns a keyword query for k documents, without its text.
func (w *Words) Query(k int) keywords.Query {
	q := keywords.Query{K: k}
	if w.Expression() {
		q.Mode = keywords.Expression
	}
	return q
}

// Fuse fuses hits by vectors with hits by words and returns a page of them. rankingPage is the page
// of each list that the fusion needs.
func (w *Words) Fuse(vectors, words []search.RankedHit, page, rankingPage search.Page) ([]search.RankedHit, error) {
	return search.FuseRanked(fuse.RelativeScore, w.alpha, page, rankingPage, vectors, words)
}

// KeywordSettings holds the flags for how text becomes search terms.
type KeywordSettings struct {
	settings keywords.Settings
	fields   string
	set      *pflag.FlagSet
}

// Register adds the flags to f.
func (k *KeywordSettings) Register(f *pflag.FlagSet) {
	k.set = f
	f.Var(Choice(&k.settings.Tokenizer, keywords.Unicode61, keywords.Unicode61, keywords.Trigram), "tokenizer",
		"find words, or any part of a text of three characters or more")
	f.Var(Choice(&k.settings.Stemmer, "", keywords.English), "stemmer", "find words with other endings, too")
	f.Var(Choice(&k.settings.StopWords, "", keywords.English), "stop-words", "ignore the most common words")
	f.StringVar(&k.fields, "fields", "", "`LIST` of the JSON fields to search, as title,author.name (default: all "+
		"values)")
}

// Settings returns the settings of the flags, or nil if no flag is set.
func (k *KeywordSettings) Settings() (*keywords.Settings, error) {
	anySet := false
	for _, name := range []string{"tokenizer", "stemmer", "stop-words", "fields"} {
		anySet = anySet || k.set.Changed(name)
	}
	if !anySet {
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
