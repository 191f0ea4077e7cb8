package vectors

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// FuzzCheckDocument checks that any draft is decided, that a refusal has one of three sentinels, and that
// whatever is accepted comes back from JSON, and as a passage, as it was.
func FuzzCheckDocument(f *testing.F) {
	for _, payload := range []string{"", "null", " {} ", `{"n":1}`, `{"a":{"b":[1,null]},"é":"\ud83d\ude00"}`, `{"a":"\ud83d"}`,
		`{"_id":"a"}`, `{"_ID":"a"}`, `{"\u005fid":"a"}`, `{"_subset_":1}`, `{"n":1e999}`, `{"n":NaN}`, `{"n":1,"\u006e":2}`, `[]`, `{`, "\xff",
		`{"_passage":{"of":"a","n":0,"start":0,"end":1}}`, `{"_Passage":1}`, `{"text":"x"}`, `{"a":` + strings.Repeat("[", 101)} {
		f.Add("a#0", "a title", "a text", payload, false)
		f.Add("a", "", "", payload, true)
	}
	for _, id := range []string{"", " ", "a\tb", "a\n", "\ufeffa", "\xed\xa0\xbd", "7", strings.Repeat("x", 4086), strings.Repeat("x", 4097)} {
		f.Add(id, "\xff", "", "", false)
		f.Add(id, "", "\xed\xa0\x80", "", true)
		f.Add(id, "", "", "", true)
	}
	f.Fuzz(func(t *testing.T, id, title, text, payload string, split bool) {
		d := Draft{ID: id, Title: title, Text: text, Payload: []byte(payload), Split: split}
		err := CheckDocument(d)
		if err != nil {
			if !errors.Is(err, ErrID) && !errors.Is(err, ErrText) && !errors.Is(err, ErrPayload) {
				t.Fatalf("%v wraps no sentinel", err)
			}
			return
		}
		line, err := jsontext.MarshalUnescaped(map[string]string{"_id": id, "title": title, "text": text})
		require.NoError(t, err)
		require.NoError(t, CheckObject(line))
		var back map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(line, &back))
		if id != "" {
			got, err := ParseID(back["_id"])
			require.NoError(t, err)
			require.Equal(t, id, got)
		}
		for name, want := range map[string]string{"title": title, "text": text} {
			var got string
			require.NoError(t, json.Unmarshal(back[name], &got))
			require.Equal(t, want, got)
		}
		if IsEmptyPayload(d.Payload) {
			require.NoError(t, CheckDocument(Draft{ID: id, Title: title, Text: text, Split: split}))
			return
		}
		// As others write the same object.
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(d.Payload, &fields))
		again, err := jsontext.MarshalUnescaped(fields)
		require.NoError(t, err)
		require.NoError(t, CheckDocument(Draft{ID: id, Payload: again}))
		if p, err := PassageFromPayload(id, d.Payload); id == "" || !split || p != nil || err != nil || fields[IDField] != nil {
			return
		}
		p := Passage{ParentID: id, Number: 1<<32 - 1, End: 1}
		own, err := p.Payload(d.Payload)
		require.NoError(t, err)
		require.NoError(t, CheckDocument(Draft{ID: p.ID(), Payload: own}))
		if fields["text"] == nil {
			require.JSONEq(t, string(again), string(DocumentPayload(own)))
		}
	})
}
