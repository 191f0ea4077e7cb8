package modeldir

import (
	"encoding/json"
	"os"
	"slices"

	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// withAdded returns the tokenizer with the tokens that tokenizer_config.json adds to those of
// tokenizer.json, or lists with other settings, as transformers adds them. b is the JSON that the
// tokenizer was parsed from. nil means its file. lowers adds a step that lowers texts first.
func (r *reader) withAdded(t *tokenizer.Tokenizer, b []byte, lowers bool) (*tokenizer.Tokenizer, error) {
	added, err := r.mergeAddedTokens(t)
	if err != nil || added == nil {
		return t, err
	}
	if b == nil {
		if b, err = os.ReadFile(r.tokenizerPath); err != nil {
			return nil, pathless(err)
		}
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(jsontext.TrimByteOrderMark(b), &m); err != nil {
		return nil, tokenizerError(err)
	}
	if m["added_tokens"], err = json.Marshal(added); err != nil {
		return nil, err
	}
	if b, err = json.Marshal(m); err != nil {
		return nil, err
	}
	if lowers {
		return withLowercase(b)
	}
	t, err = tokenizer.Parse(b)
	return t, tokenizerError(err)
}

// mergeAddedTokens returns the added tokens of tokenizer.json and tokenizer_config.json together, as
// transformers merges them. nil means that tokenizer.json has them all.
func (r *reader) mergeAddedTokens(t *tokenizer.Tokenizer) ([]tokenizer.AddedToken, error) {
	f := r.special.config
	listed, _, err := decodeValue[map[int32]addedToken](f, "added_tokens_decoder", "an object of tokens by their ids")
	if err != nil {
		return nil, err
	}
	tokens, changed, indexes := t.Added(), false, map[string]int{}
	for i, a := range tokens {
		indexes[a.Content] = i
	}
	add := func(a addedToken, replace bool) {
		token := tokenizer.AddedToken{
			Content:    a.Content,
			SingleWord: a.SingleWord,
			LStrip:     a.LStrip,
			RStrip:     a.RStrip,
			Normalized: !a.Special,
			Special:    a.Special,
		}
		if a.Normalized != nil {
			token.Normalized = *a.Normalized
		}
		i, ok := indexes[a.Content]
		switch {
		case a.Content == "" || ok && !replace:
			return
		case !ok:
			token.ID = int32(t.VocabSize())
			if id, ok := t.ID(a.Content); ok {
				token.ID = id
			} else if changed && len(tokens) > 0 {
				token.ID = max(token.ID, slices.MaxFunc(tokens, compareIDs).ID+1)
			}
			if int(token.ID) >= r.c.Backbone.Vocabulary { // the model has no embedding for it
				return
			}
			indexes[a.Content], tokens = len(tokens), append(tokens, token)
		default:
			token.ID, token.Special = tokens[i].ID, tokens[i].Special // the only differences that do not matter
			if tokens[i] == token {
				return
			}
			tokens[i] = token
		}
		changed = true
		r.warnf("%s: %q is not an added token of %s, or has other settings there: the class takes the first",
			r.relativePath(f.path), a.Content, r.relativePath(r.tokenizerPath))
	}
	for _, id := range sortedKeys(listed) {
		add(listed[id], true)
	}
	for _, key := range specialKeys {
		// A wrong value is an error only where the token is needed.
		if a, _, err := decodeValue[addedToken](f, key, "a token"); err == nil {
			a.Special = true
			add(a, false)
		}
	}
	if !changed {
		return nil, nil
	}
	return tokens, nil
}

func compareIDs(a, b tokenizer.AddedToken) int { return int(a.ID - b.ID) }
