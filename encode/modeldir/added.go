package modeldir

import (
	"encoding/json"
	"os"
	"slices"

	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/internal/jsontext"
)

// withAdded is a tokenizer with the tokens that tokenizer_config.json adds to those of tokenizer.json, or has with
// other settings, as transformers adds them. b is the JSON that the tokenizer was parsed from. nil means its file.
func (r *reader) withAdded(t *tokenizer.Tokenizer, b []byte, lowers bool) (*tokenizer.Tokenizer, error) {
	added, err := r.added(t)
	if err != nil || added == nil {
		return t, err
	}
	if b == nil {
		if b, err = os.ReadFile(r.tokenizerPath); err != nil {
			return nil, pathless(err)
		}
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(jsontext.WithoutMark(b), &m); err != nil {
		return nil, unpath(err)
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
	return t, unpath(err)
}

// added are all added tokens, nil where tokenizer.json has the same.
func (r *reader) added(t *tokenizer.Tokenizer) ([]tokenizer.AddedToken, error) {
	f := r.special.config
	listed, _, err := value[map[int32]addedToken](f, "added_tokens_decoder", "an object of tokens by their ids")
	if err != nil {
		return nil, err
	}
	all, changed, place := t.Added(), false, map[string]int{}
	for i, a := range all {
		place[a.Content] = i
	}
	put := func(a addedToken, replace bool) {
		token := tokenizer.AddedToken{
			Content: a.Content, SingleWord: a.SingleWord, LStrip: a.LStrip, RStrip: a.RStrip,
			Normalized: !a.Special, Special: a.Special,
		}
		if a.Normalized != nil {
			token.Normalized = *a.Normalized
		}
		i, ok := place[a.Content]
		switch {
		case a.Content == "" || ok && !replace:
			return
		case !ok:
			token.ID = int32(t.VocabSize())
			if id, ok := t.ID(a.Content); ok {
				token.ID = id
			} else if changed && len(all) > 0 {
				token.ID = max(token.ID, slices.MaxFunc(all, byID).ID+1)
			}
			if int(token.ID) >= r.c.Backbone.Vocabulary { // the model has no embedding of it
				return
			}
			place[a.Content], all = len(all), append(all, token)
		default:
			token.ID, token.Special = all[i].ID, all[i].Special // which makes no difference
			if all[i] == token {
				return
			}
			all[i] = token
		}
		changed = true
		r.warnf("%s: %q is no added token of %s, or has other settings there: the class takes the first",
			r.name(f.path), a.Content, r.name(r.tokenizerPath))
	}
	for _, id := range sortedKeys(listed) {
		put(listed[id], true)
	}
	for _, key := range specialKeys {
		if a, _, err := value[addedToken](f, key, "a token"); err == nil { // else who needs it says so
			a.Special = true
			put(a, false)
		}
	}
	if !changed {
		return nil, nil
	}
	return all, nil
}

func byID(a, b tokenizer.AddedToken) int { return int(a.ID - b.ID) }
