package modeldir

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// skipIDs turns words to skip into ids, and warns of those that are no tokens.
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
			// PyLate asks for the ids of words, and gets that of unknown pieces.
			c.Skip = append(c.Skip, unknown)
			outcome = "as in PyLate, " + c.Tokenizer.Piece(unknown) + " is skipped in their place"
		}
		r.warnf("%s: words to skip that are no tokens: %s: %s", cmp.Or(r.origin["skip"], byDefault), strings.Join(missing, " "), outcome)
	}
	slices.Sort(c.Skip)
	c.Skip = slices.Compact(c.Skip)
}

// mostTokens bounds lengths: tables of rotary angles have a row for each position.
const mostTokens = 1 << 20

// check holds values against each other, with words to skip turned into ids.
func (r *reader) check() error {
	c := &r.c
	if c.Expand.On && c.Expand.Mask < 0 {
		return Faultf(r.dir, "mask", ErrTokenizer, "queries are filled up with a mask token, which no file names").decided("mask")
	}
	if err := firstError(r.sides(), r.types(), r.padding()); err != nil {
		return err
	}
	for _, w := range r.forgotten {
		if strings.Contains(c.Query.Prompt, w) || strings.Contains(c.Document.Prompt, w) {
			return Faultf(r.tokenizerPath, "", ErrContradiction, "%q is in a prompt, but %s says vocab_size %d",
				w, r.name(r.config.path), c.Backbone.Vocabulary)
		}
	}
	for _, l := range []struct {
		name string
		n    int
	}{{"query.length", c.Query.Length}, {"document.length", c.Document.Length}} {
		if l.n > mostTokens && r.graphs == nil {
			return Faultf(r.dir, l.name, ErrConfig, "is %d by %s, want %d at most", l.n, r.origin[l.name], mostTokens)
		}
		if l.n > c.Backbone.MaxPositions && r.origin[l.name] == byOverride {
			key := strings.ReplaceAll(l.name, ".", "_")
			return &ModelError{Path: r.dir, Field: key, Err: &LengthError{l.n, shortest, c.Backbone.MaxPositions}}
		}
		if l.n > c.Backbone.MaxPositions {
			return Faultf(r.dir, l.name, ErrContradiction, "is %d by %s, but the model takes %d tokens by %s",
				l.n, r.origin[l.name], c.Backbone.MaxPositions, cmp.Or(r.origin["backbone"], byDefault)).decided(l.name)
		}
	}
	if c.Expand.Length > c.Query.Length {
		return Faultf(r.dir, "query.length", ErrContradiction, "is %d by %s, but queries are filled up to %d",
			c.Query.Length, r.origin["query.length"], c.Expand.Length).decided("query.length")
	}
	r.skipIDs()
	in := c.Backbone.Hidden
	for _, d := range c.Dense {
		if d.In != in && r.graphs == nil {
			return Faultf(filepath.Dir(d.Path), "in_features", ErrContradiction, "is %d, but what comes before has %d dimensions", d.In, in)
		}
		in = d.Out
	}
	if n := len(c.Dense); n > 0 {
		f := &file{path: filepath.Join(filepath.Dir(c.Dense[n-1].Path), "config.json")}
		if err := r.dim.say(f, "out_features", in); err != nil {
			return err
		}
	}
	if r.graphs != nil {
		r.graphHeads()
	}
	return nil
}
