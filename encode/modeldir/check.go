package modeldir

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// skipIDs converts the words to skip to ids, and warns of words that are not tokens.
func (r *reader) skipIDs() {
	c := &r.c
	var missing []string
	for _, w := range r.skipWords {
		if id, ok := c.Tokenizer.ID(w); ok {
			c.Skip = append(c.Skip, id)
		} else {
			missing = append(missing, strconv.Quote(w))
		}
	}
	if missing != nil {
		outcome := "ignored"
		if unknown, has := c.Tokenizer.Unknown(); has && !r.multiVector && r.origin["skip"] != byOverride {
			// PyLate converts a word that is not a token to the id of the unknown token.
			c.Skip = append(c.Skip, unknown)
			outcome = "as in PyLate, " + c.Tokenizer.Piece(unknown) + " is skipped in their place"
		}
		r.warnf("%s: words to skip that are not tokens: %s: %s",
			cmp.Or(r.origin["skip"], byDefault), strings.Join(missing, " "), outcome)
	}
	slices.Sort(c.Skip)
	c.Skip = slices.Compact(c.Skip)
}

// maxTokens limits lengths, since tables of rotary angles have a row for each position.
const maxTokens = 1 << 20

// checkValues checks values against each other, and converts the words to skip to ids.
func (r *reader) checkValues() error {
	c := &r.c
	if c.Expand.On && c.Expand.Mask < 0 {
		return Errorf(r.dir, "mask", ErrTokenizer,
			"queries are filled up with a mask token, which no file names").withSetting("mask")
	}
	if err := firstError(r.checkSides(), r.checkTokenTypes(), r.checkPadding()); err != nil {
		return err
	}
	for _, w := range r.forgottenTokens {
		if strings.Contains(c.Query.Prompt, w) || strings.Contains(c.Document.Prompt, w) {
			return Errorf(r.tokenizerPath, "", ErrContradiction, "%q is in a prompt, but %s says vocab_size %d",
				w, r.relativePath(r.config.path), c.Backbone.Vocabulary)
		}
	}
	// Lengths.
	for _, l := range []struct {
		name string
		n    int
	}{
		{"query.length", c.Query.Length},
		{"document.length", c.Document.Length},
	} {
		if l.n > maxTokens && r.graphs == nil {
			return Errorf(r.dir, l.name, ErrConfig, "is %d by %s, want %d at most", l.n, r.origin[l.name], maxTokens)
		}
		if l.n > c.Backbone.MaxPositions && r.origin[l.name] == byOverride {
			key := strings.ReplaceAll(l.name, ".", "_")
			return &ModelError{Path: r.dir, Field: key, Err: &LengthError{l.n, minLength, c.Backbone.MaxPositions}}
		}
		if l.n > c.Backbone.MaxPositions {
			return Errorf(r.dir, l.name, ErrContradiction, "is %d by %s, but the model takes %d tokens by %s",
				l.n, r.origin[l.name], c.Backbone.MaxPositions, cmp.Or(r.origin["backbone"], byDefault),
			).withSetting(l.name)
		}
	}
	if c.Expand.Length > c.Query.Length {
		return Errorf(r.dir, "query.length", ErrContradiction, "is %d by %s, but queries are filled up to %d",
			c.Query.Length, r.origin["query.length"], c.Expand.Length).withSetting("query.length")
	}
	r.skipIDs()
	// Dimensions of the heads.
	in := c.Backbone.Hidden
	for _, d := range c.Dense {
		if d.In != in && r.graphs == nil {
			return Errorf(filepath.Dir(d.Path), "in_features", ErrContradiction,
				"is %d, but what comes before has %d dimensions", d.In, in)
		}
		in = d.Out
	}
	if n := len(c.Dense); n > 0 {
		f := &file{path: filepath.Join(filepath.Dir(c.Dense[n-1].Path), "config.json")}
		if err := r.dim.setByFile(f, "out_features", in); err != nil {
			return err
		}
	}
	if r.graphs != nil {
		r.graphHeads()
	}
	return nil
}
