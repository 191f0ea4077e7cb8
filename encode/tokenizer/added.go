package tokenizer

import (
	"bytes"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// addedToken is a text that is always one token.
type addedToken struct {
	id                  int32
	content             string
	singleWord          bool // only found as a whole word
	lstrip, rstrip      bool // includes the white space before, after it
	normalized, special bool
}

// addedSet finds added tokens in a text: the leftmost, and the longest of those that begin at the
// same offset.
type addedSet struct {
	trie   *trie     // of indexes in tokens
	begins [256]bool // bytes that a token begins with
	tokens []addedToken
}

// readAdded reads the part "added_tokens" of the file, and adds the tokens to the vocabulary.
func readAdded(list value, v *vocabulary) ([]addedToken, error) {
	if list.absent() {
		return nil, nil
	}
	values, err := list.listValue()
	if err != nil {
		return nil, err
	}
	modelSize, highestID := int32(v.size), int32(-1)
	seen := map[string]bool{}
	var tokens []addedToken
	for _, item := range values {
		o, err := item.objectValue()
		if err != nil {
			return nil, err
		}
		var t addedToken
		idField := o.read("id")
		if t.id, err = idField.idValue(); err != nil {
			return nil, err
		}
		content := o.read("content")
		if t.content, err = content.stringValue(); err != nil {
			return nil, err
		}
		for _, flag := range []struct {
			key    string
			target *bool
		}{
			{"single_word", &t.singleWord},
			{"lstrip", &t.lstrip},
			{"rstrip", &t.rstrip},
			{"normalized", &t.normalized},
			{"special", &t.special},
		} {
			if *flag.target, err = o.read(flag.key).boolValue(); err != nil {
				return nil, err
			}
		}
		if err := o.checkAllRead(); err != nil {
			return nil, err
		}
		switch {
		case t.content == "":
			return nil, content.errorf("is empty")
		case seen[t.content]:
			return nil, content.errorf("%q is there twice", t.content)
		}
		seen[t.content] = true
		// The Python package ignores the id in the file and numbers the tokens
		// itself. If the two differ, it is unknown which id the encoder was trained
		// with.
		want, ok := v.ids[t.content]
		if !ok {
			want = max(modelSize, highestID+1)
		}
		if t.id != want {
			return nil, idField.errorf("is %d for %q, whose number is %d by the vocabulary and the tokens before",
				t.id, t.content, want)
		}
		highestID = max(highestID, want)
		tokens = append(tokens, t)
	}
	for _, t := range tokens {
		v.add(t.content, t.id)
	}
	return tokens, nil
}

// newAddedSet returns the set of tokens with their spellings. Of equal spellings, the
// first special token counts, or else the first token. It returns nil for no tokens.
func newAddedSet(tokens []addedToken, spelled []string) *addedSet {
	if len(tokens) == 0 {
		return nil
	}
	spelledBytes := 0
	for _, s := range spelled {
		spelledBytes += len(s)
	}
	s := &addedSet{trie: newTrie(spelledBytes), tokens: tokens}
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

// splitText appends the parts of the text: added tokens, and the text between them with id -1.
func (s *addedSet) splitText(dst []match, text []byte) []match {
	done := 0 // the parts so far end here
	for i := 0; s != nil && i < len(text); {
		if !s.begins[text[i]] {
			i++
			continue
		}
		t, n := s.trie.longestPrefix(0, text[i:])
		if n == 0 {
			i++
			continue
		}
		token := &s.tokens[t]
		start, stop := i, i+n
		i = stop
		before, _ := utf8.DecodeLastRune(text[:start]) // U+FFFD, not a letter, at the ends of the text
		after, _ := utf8.DecodeRune(text[stop:])
		if token.singleWord && (chars.InfoOf(before).Is(chars.Word) || chars.InfoOf(after).Is(chars.Word)) {
			continue
		}
		if token.lstrip {
			start = max(len(bytes.TrimRightFunc(text[:start], isSpace)), done)
		}
		if token.rstrip {
			stop = len(text) - len(bytes.TrimLeftFunc(text[stop:], isSpace))
		}
		// A token within the white space of the last one begins before done. The
		// text after it is then split from there, as in the Python package.
		if done < start {
			dst = append(dst, match{span{int32(done), int32(start)}, -1})
		}
		dst = append(dst, match{span{int32(start), int32(stop)}, token.id})
		done = stop
	}
	if done < len(text) {
		dst = append(dst, match{span{int32(done), int32(len(text))}, -1})
	}
	return dst
}

func isSpace(r rune) bool { return chars.InfoOf(r).Is(chars.Space) }
