package tokenizer

import (
	"bytes"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// addedToken is a text that is always one token.
type addedToken struct {
	id                   int32
	content              string
	word, lstrip, rstrip bool // only as a whole word; with the white space before, after
	normalized, special  bool
}

// addedSet finds added tokens in a text: the leftmost, of those that begin at one place
// the longest.
type addedSet struct {
	trie   *trie
	begins [256]bool
	tokens []addedToken
}

// readAdded reads the part "added_tokens" of the file and gives the tokens that
// the model lacks their ids.
func readAdded(list value, v *vocabulary) ([]addedToken, error) {
	if list.absent() {
		return nil, nil
	}
	values, err := list.list()
	if err != nil {
		return nil, err
	}
	model, top := int32(v.size), int32(-1)
	seen := map[string]bool{}
	var tokens []addedToken
	for _, item := range values {
		o, err := item.object()
		if err != nil {
			return nil, err
		}
		var t addedToken
		at := o.get("id")
		if t.id, err = at.id(); err != nil {
			return nil, err
		}
		content := o.get("content")
		if t.content, err = content.str(); err != nil {
			return nil, err
		}
		for _, flag := range []struct {
			key string
			to  *bool
		}{{"single_word", &t.word}, {"lstrip", &t.lstrip}, {"rstrip", &t.rstrip}, {"normalized", &t.normalized}, {"special", &t.special}} {
			if *flag.to, err = o.get(flag.key).bool(); err != nil {
				return nil, err
			}
		}
		if err := o.rest(); err != nil {
			return nil, err
		}
		switch {
		case t.content == "":
			return nil, content.faultf("is empty")
		case seen[t.content]:
			return nil, content.faultf("%q is there twice", t.content)
		}
		seen[t.content] = true
		// The Python package does not look at the id in the file: it numbers the
		// tokens itself. Where the two differ, which one the encoder was trained
		// with cannot be known.
		want, ok := v.ids[t.content]
		if !ok {
			want = max(model, top+1)
		}
		if t.id != want {
			return nil, at.faultf("is %d for %q, whose number is %d by the vocabulary and the tokens before", t.id, t.content, want)
		}
		top = max(top, want)
		tokens = append(tokens, t)
	}
	for _, t := range tokens {
		v.add(t.content, t.id)
	}
	return tokens, nil
}

// newAddedSet is a set of tokens found by the given spellings; of equal ones
// the first special token counts, else the first. It is nil for no tokens.
func newAddedSet(tokens []addedToken, spelled []string) *addedSet {
	if len(tokens) == 0 {
		return nil
	}
	bytes := 0
	for _, s := range spelled {
		bytes += len(s)
	}
	s := &addedSet{trie: newTrie(bytes), tokens: tokens}
	for _, special := range []bool{false, true} {
		for i := len(tokens) - 1; i >= 0; i-- {
			if tokens[i].special == special {
				s.trie.insert(0, spelled[i], int32(i))
				s.begins[spelled[i][0]] = true
			}
		}
	}
	return s
}

// cut appends the parts of the text: tokens, and what is between them (id -1).
func (s *addedSet) cut(dst []match, text []byte) []match {
	done := 0
	for i := 0; s != nil && i < len(text); {
		if !s.begins[text[i]] {
			i++
			continue
		}
		t, n := s.trie.longest(0, text[i:])
		if n == 0 {
			i++
			continue
		}
		token := &s.tokens[t]
		start, stop := i, i+n
		i = stop
		before, _ := utf8.DecodeLastRune(text[:start]) // at the ends of the text U+FFFD, which is no letter
		after, _ := utf8.DecodeRune(text[stop:])
		if token.word && (chars.InfoOf(before).Is(chars.Word) || chars.InfoOf(after).Is(chars.Word)) {
			continue
		}
		if token.lstrip {
			start = max(len(bytes.TrimRightFunc(text[:start], isSpace)), done)
		}
		if token.rstrip {
			stop = len(text) - len(bytes.TrimLeftFunc(text[stop:], isSpace))
		}
		// A token within the white space that the last one took begins before
		// done; the text after it is then split from there, as the Python package
		// does.
		if done < start {
			dst = append(dst, match{place{int32(done), int32(start)}, -1})
		}
		dst = append(dst, match{place{int32(start), int32(stop)}, token.id})
		done = stop
	}
	if done < len(text) {
		dst = append(dst, match{place{int32(done), int32(len(text))}, -1})
	}
	return dst
}

func isSpace(r rune) bool { return chars.InfoOf(r).Is(chars.Space) }
