package server

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever the body is, what is refused for its fields is what encoding/json refuses.
func TestFieldsAreThoseThatAreDecoded(t *testing.T) {
	type body struct {
		searchIn
		Free map[string]any `json:"free"`
	}
	names := rapid.SampledFrom([]string{"queries", "params", "QUERIES", "weights", "embeddings", "top_k", "free", "metadata", "ids", "x", `a\"]}`, "subset"})
	space := rapid.SampledFrom([]string{"", " ", "\n\t"})
	var value func(depth int) *rapid.Generator[string]
	value = func(depth int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			s := func() string { return space.Draw(t, "space") }
			kind := rapid.IntRange(0, 6).Draw(t, "kind")
			if depth == 0 {
				kind %= 4
			}
			if kind < 4 {
				return s() + []string{"null", "-1.5e3", `"}],{\\\"["`, "true"}[kind] + s()
			}
			var parts []string
			for range rapid.IntRange(0, 3).Draw(t, "parts") {
				v := value(depth-1).Draw(t, "value")
				if kind > 4 {
					v = s() + `"` + names.Draw(t, "name") + `"` + s() + ":" + v
				}
				parts = append(parts, v)
			}
			if kind == 4 {
				return s() + "[" + strings.Join(parts, ",") + s() + "]"
			}
			return "{" + strings.Join(parts, ",") + s() + "}" + s()
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		text := value(4).Draw(t, "text")
		require.True(t, json.Valid([]byte(text)), text)
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		var into body
		want := d.Decode(&into)
		got := checkFields(t.Context(), []byte(text), reflect.TypeFor[*body]())
		if got == nil {
			require.False(t, want != nil && strings.Contains(want.Error(), "unknown field"), "%s: %v", text, want)
		} else if want != nil && strings.Contains(want.Error(), "unknown field") {
			return
		} else {
			require.Error(t, want, text) // of a type that comes before
		}
	})
}
