package condition_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

type golden struct {
	Documents []json.RawMessage
	Cases     []goldenCase
	documents []*condition.Record
}

type goldenCase struct {
	Condition string
	Params    []any
	Truth     string
}

// bind binds the condition of a case.
func (c *goldenCase) bind(t *testing.T) *condition.Condition {
	t.Helper()
	e, err := condition.ParsePlaceholders(c.Condition)
	require.NoError(t, err, c.Condition)
	bound, err := e.Bind(c.Params...)
	require.NoError(t, err, c.Condition)
	return bound
}

func readGolden(t *testing.T) *golden {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var g golden
	require.NoError(t, d.Decode(&g))
	require.NotEmpty(t, g.Cases)
	if !effort.Long() {
		var some []goldenCase
		for i := 0; i < len(g.Cases); i += 6 {
			some = append(some, g.Cases[i])
		}
		g.Cases = some
	}
	for i, payload := range g.Documents {
		// To SQLite an array is a text, and not its elements.
		var object map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(payload, &object))
		for key, value := range object {
			if value[0] == '[' {
				var text bytes.Buffer
				require.NoError(t, json.Compact(&text, value))
				object[key], err = json.Marshal(text.String())
				require.NoError(t, err)
			}
		}
		payload, err = json.Marshal(object)
		require.NoError(t, err)
		g.documents = append(g.documents, new(condition.Evaluation).Document(payload, fmt.Sprint("doc", i), uint32(i)))
	}
	return &g
}

var truths = map[condition.Truth]byte{condition.True: '1', condition.False: '0', condition.Unknown: 'n'}

func (g *golden) truth(c *condition.Condition) string {
	var b strings.Builder
	for _, d := range g.documents {
		b.WriteByte(truths[c.Truth(d)])
	}
	return b.String()
}

// literal writes a parameter as a literal.
func literal(p any) string {
	switch p := p.(type) {
	case nil:
		return "NULL"
	case string:
		return "'" + strings.ReplaceAll(p, "'", "''") + "'"
	}
	return fmt.Sprint(p)
}

// Conditions have the truth that SQLite gives them; with literals as with parameters.
func TestTruthIsThatOfSQLite(t *testing.T) {
	g := readGolden(t)
	for _, c := range g.Cases {
		if got := g.truth(c.bind(t)); got != c.Truth {
			t.Fatalf("%s with %v:\n%s, SQLite says\n%s", c.Condition, c.Params, got, c.Truth)
		}
		text := c.Condition
		var b strings.Builder
		for _, p := range c.Params {
			before, after, _ := strings.Cut(text, "?")
			b.WriteString(before + literal(p))
			text = after
		}
		e, err := condition.Parse(b.String() + text)
		require.NoError(t, err)
		bound, err := e.Bind()
		require.NoError(t, err)
		require.Equal(t, c.Truth, g.truth(bound), e)
	}
}

// ordinals are sets for Select in which each test is asked of each document.
type ordinals struct{ documents []*condition.Record }

func (o ordinals) filter(keep func(i int) bool) map[int]bool {
	set := map[int]bool{}
	for i := range o.documents {
		if keep(i) {
			set[i] = true
		}
	}
	return set
}

func (o ordinals) Test(t *condition.Test, is condition.Truth) (map[int]bool, error) {
	return o.filter(func(i int) bool { return t.Truth(o.documents[i].Value(t.Field)) == is }), nil
}

func (o ordinals) All() map[int]bool  { return o.filter(func(int) bool { return true }) }
func (o ordinals) None() map[int]bool { return map[int]bool{} }

func (o ordinals) And(a, b map[int]bool) map[int]bool {
	return o.filter(func(i int) bool { return a[i] && b[i] })
}

func (o ordinals) Or(a, b map[int]bool) map[int]bool {
	return o.filter(func(i int) bool { return a[i] || b[i] })
}

// bySpans answers tests by the spans of their values, where they have any.
type bySpans struct{ ordinals }

func (o bySpans) Test(t *condition.Test, is condition.Truth) (map[int]bool, error) {
	never := t.NeverFalse()
	if numbers, texts, ok := t.Points(); ok {
		return o.filter(func(i int) bool {
			v := o.documents[i].Value(t.Field)
			if v.Kind == condition.Null {
				return t.Truth(v) == is
			}
			points := texts
			if v.IsNumber() {
				points = numbers
			}
			there := slices.ContainsFunc(points, func(p condition.Value) bool { return p.Compare(v) == 0 })
			return there == (is == condition.True) && (there || !never)
		}), nil
	}
	least := is
	if is == condition.False { // it is of what is neither true nor unknown
		least = condition.Unknown
	}
	numbers, texts, ok := t.Spans(least)
	if !ok {
		return o.ordinals.Test(t, is)
	}
	return o.filter(func(i int) bool {
		v := o.documents[i].Value(t.Field)
		spans := texts
		switch {
		case v.Kind == condition.Null:
			return t.Truth(v) == is
		case v.IsNumber():
			spans = numbers
		}
		n := 0 // spans are disjoint
		for _, s := range spans {
			if !s.Above(v) && !s.Below(v) {
				n++
			}
		}
		return n < 2 && (n == 1) == (is == condition.True) && (n == 1 || !never)
	}), nil
}

// Sets put together by Select are the documents that match, also where tests are
// answered by the spans of their values.
func TestSelectIsMatch(t *testing.T) {
	g := readGolden(t)
	o := ordinals{g.documents}
	for _, c := range g.Cases {
		bound := c.bind(t)
		for _, sets := range []condition.Sets[map[int]bool]{o, bySpans{o}} {
			got, err := condition.Select(t.Context(), bound, sets)
			require.NoError(t, err)
			require.Equal(t, o.filter(func(i int) bool { return c.Truth[i] == '1' }), got, c.Condition)
		}
	}
}
