package condition_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
	"github.com/plaid-ir/plaid/internal/testing/countdown"
)

// truth is 1, 0 or n, as in golden.json.
func truth(t require.TestingT, text, payload string, params ...any) string {
	c := conditiontest.Bind(t, text, params...)
	return string(truths[c.Truth(new(condition.Evaluation).Document([]byte(payload), "the id", 7))])
}

// A test is true of an array if it is of an element, false if it is of none, and unknown of what
// is null.
func TestElementsOfArrays(t *testing.T) {
	const payload = `{"tags": ["red", "Blue", null, 3, 4.0, true, ["x", "y"], {"k": 1}], "empty": [], "nulls": [null], "none": null,
		"long": ["` + "a text that is longer than the forty bytes that are kept" + `"], "no": "red"}`
	for text, want := range map[string]string{
		"tags = 'red'": "1", "tags = 'blue'": "0", "tags != 'red'": "0", "tags <> 'blue'": "1", "NOT tags = 'blue'": "1",
		"tags IN ('green', 'Blue')": "1", "tags IN ('green')": "0", "tags NOT IN ('green')": "1", "tags NOT IN ('green', 'red')": "0", "tags IN ()": "0",
		"tags = 3": "1", "tags = '4'": "1", "tags = TRUE": "1", "tags = 5": "0", "tags > 3.5": "1", "tags < 1": "0", "NOT tags < 1": "1",
		"tags BETWEEN 2 AND 3": "1", "tags BETWEEN 5 AND 100": "0", "tags BETWEEN 3.2 AND 3.8": "0", "tags NOT BETWEEN 5 AND 100": "1",
		"tags LIKE 'b%'": "1", "tags LIKE 'e%'": "0", "tags NOT LIKE 'e%'": "1", "tags REGEXP '^re'": "1", "tags REGEXP '^ed'": "0",
		`tags = '["x","y"]'`: "1", `tags = 'x'`: "0", `tags = '{"k":1}'`: "1", "tags.k = 1": "1", "tags.k = 2": "0", "tags.k.l = 1": "n",
		`tags LIKE '%"red"%'`: "1", `tags LIKE '["red","Blue",null,%'`: "1", `tags REGEXP '"Blue",null'`: "1", `tags >= '['`: "1", `tags < '[A'`: "1",
		"tags IS NULL": "0", "tags IS NOT NULL": "1", "tags = NULL": "n", "tags != NULL": "n", "tags IN ('red', NULL)": "1", "tags IN ('green', NULL)": "n",
		"tags < NULL": "n", "tags BETWEEN 1 AND NULL": "n", "tags LIKE NULL": "n",
		"empty = 'x'": "0", "empty != 'x'": "1", "empty IS NULL": "0", "empty = '[]'": "1", "empty LIKE '[%'": "1", "empty > ''": "0", "empty < NULL": "n", "empty = NULL": "n",
		"empty IN (NULL)": "n", "empty IN ()": "0", "NOT empty BETWEEN 1 AND NULL": "1",
		"nulls = 'x'": "0", "nulls IS NULL": "0", "nulls = '[null]'": "1", "nulls > 0 OR nulls <= 0": "0",
		"none = 'x'": "n", "none IS NULL": "1", "none IN ()": "0", "missing <> 'x'": "n",
		"long LIKE '%forty%'": "1", "long = 'x'": "0", "no = 'red'": "1", `no LIKE '%"red"%'`: "0",
	} {
		require.Equal(t, want, truth(t, text, payload), text)
	}
	require.Equal(t, "1", truth(t, "a = ?", `{"a": [1, 2]}`, []any{1, 2}))
	require.Equal(t, "0", truth(t, "a = ?", `{"a": [1, 2]}`, []any{2, 1}))
	require.Equal(t, "1", truth(t, "a = ?", `{"a": [[1, 2], 3]}`, []any{1, 2}))
}

// A dot is one between keys or one in a key, and paths go through arrays of objects.
func TestPaths(t *testing.T) {
	const payload = `{"author": {"name": "Ann", "Age": 7}, "author.name": "Bo", "authors": [{"name": "Cy"}, {"name": ["Di", "Ed"]}, "name", {"name": null}, [{"name": "Flo"}]],
		"a.b": {"c.d": [{"e": 1}, {"e.f": 2}]}, "a": {"b.c": {"d": {"e": 3}}, "b": {"c": null}}, "x.y": 1, "_id": {"z": 1}, "_id.z": 2, "half": [{"p": 1}, {"q": 2}]}`
	for text, want := range map[string]string{
		"author.name = 'Ann'": "1", "author.name = 'Bo'": "1", `"author.name" = 'Ann'`: "1", `"Author"."Name" = 'Bo'`: "1", "author.name <> 'Cy'": "1", "author.name <> 'Bo'": "0",
		"author.name IN ('Ann') AND author.name IN ('Bo')": "1", "author.age = 7": "1", "author.name.x IS NULL": "1",
		"authors.name = 'Cy'": "1", "authors.name = 'Di'": "1", "authors.name = 'Ed'": "1", "authors.name = 'Flo'": "0", "authors.name = 'name'": "0", `authors.name = '["Di","Ed"]'`: "1",
		"authors.name IS NULL": "0", "authors.age = 1": "n", "authors = 'name'": "1", `authors LIKE '{"name":"Cy"}'`: "1",
		"a.b.c.d.e = 1": "1", `"a.b.c".d.e = 3`: "1", "a.b.c.d.e.f = 2": "1", "a.b.c IS NULL": "0", "x.y = 1": "1", "x = 1": "n",
		"_id.z = 2": "1", "_id.z = 1": "0", "_id = 'the id'": "1", "half.p = 1": "1", "half.p <> 1": "0", "half.r <> 1": "n",
	} {
		require.Equal(t, want, truth(t, text, payload), text)
	}
}

// Conditions on drawn arrays, objects and keys with dots mean what the definition says.
func TestConditionsByDefinition(t *testing.T) {
	scalars := []string{"0", "1", "1.0", "2", "-2.5", "true", "false", "null", `"a"`, `"ab"`, `"A"`, `"1"`, `""`, `"[]"`, `"é"`, "\"e\u0301\"", `"` + strings.Repeat("a", 41) + `"`}
	keys := []string{"a", "b", "a.b", "B", "b.a", "a.a.b", ""}
	var draw func(t *rapid.T, depth int) string
	object := func(t *rapid.T, depth int) string {
		var members []string
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			key, _ := json.Marshal(rapid.SampledFrom(keys).Draw(t, "key"))
			members = append(members, string(key)+": "+draw(t, depth+1))
		}
		return "{" + strings.Join(members, ", ") + "}"
	}
	draw = func(t *rapid.T, depth int) string {
		kind := rapid.IntRange(0, 5).Draw(t, "kind")
		switch {
		case depth < 4 && kind == 0:
			return object(t, depth)
		case depth < 4 && kind < 3:
			var elements []string
			for range rapid.IntRange(0, 4).Draw(t, "elements") {
				elements = append(elements, draw(t, depth+1))
			}
			return "[" + strings.Join(elements, " , ") + "]"
		}
		return rapid.SampledFrom(scalars).Draw(t, "scalar")
	}
	rapid.Check(t, func(t *rapid.T) {
		payload := object(t, 0)
		p := conditiontest.Evaluator{T: t, Docs: []conditiontest.Doc{{ID: "the id", Ordinal: 7, Payload: []byte(payload)}}}
		operands := slices.Concat(scalars, []string{"[1]", `["a","b"]`, "[]", `{"a":1}`, "[null]"})
		for range 5 {
			var params []any
			operand := func() string {
				params = append(params, json.RawMessage(rapid.SampledFrom(operands).Draw(t, "operand")))
				return "?"
			}
			test := func() string {
				field := rapid.SampledFrom([]string{"a", "b", "a.b", `"a.b"`, "b.a", "a.a.b", "a.b.a", `""`, `a.""`, "_id", "a.a"}).Draw(t, "field")
				switch op := rapid.SampledFrom([]string{"=", "<>", "<", "<=", ">", ">=", "IN", "BETWEEN", "LIKE", "REGEXP", "NULL"}).Draw(t, "op"); op {
				case "IN":
					return field + " IN (" + operand() + "," + operand() + ")"
				case "BETWEEN":
					return field + " BETWEEN " + operand() + " AND " + operand()
				case "LIKE":
					return field + " LIKE " + rapid.SampledFrom([]string{"'a%'", "'%a'", "'[%'", `'%"a"%'`, "'_'", "NULL"}).Draw(t, "pattern")
				case "REGEXP":
					return field + " REGEXP " + rapid.SampledFrom([]string{"'^a'", "'b$'", "'^.$'", `',"a"'`}).Draw(t, "pattern")
				case "NULL":
					return field + " IS NULL"
				default:
					return field + " " + op + " " + operand()
				}
			}
			text := test() + rapid.SampledFrom([]string{" AND ", " OR ", " AND NOT ", " OR NOT "}).Draw(t, "join") + test()
			for _, text := range []string{text, "NOT (" + text + ")"} {
				c := conditiontest.Bind(t, text, params...)
				want := p.Select(c)[0]
				got := c.Match(new(condition.Evaluation).Document([]byte(payload), "the id", 7))
				require.Equal(t, want, got, "%s %s of %s", text, params, payload)
			}
		}
	})
}

// Long arrays are read in steps, and none of their elements is kept.
func TestLongArrays(t *testing.T) {
	const n = 100_000
	var elements, objects strings.Builder
	for i := range n {
		fmt.Fprintf(&elements, `"element %d",`, i)
		fmt.Fprintf(&objects, `{"n": %d},`, i)
	}
	payload := `{"a": [` + elements.String() + `"last"], "o": [` + objects.String() + `{"n": "last"}]}`
	for _, text := range []string{"a = 'last'", "a LIKE 'l_st'", "o.n = 'last'", "o.n >= 'l'"} {
		require.Equal(t, "1", truth(t, text, payload), text)
		e := condition.NewEvaluation(countdown.New(3))
		_, err := e.Match(conditiontest.Bind(t, text), e.Document([]byte(payload), "", 0))
		require.ErrorIs(t, err, context.Canceled, text)
	}
	deep := strings.Repeat(`{"a": [`, 1000) + "1" + strings.Repeat("]}", 1000)
	require.Equal(t, "1", truth(t, strings.Repeat("a.", 999)+"a = 1", deep))
	require.Equal(t, "n", truth(t, strings.Repeat("a.", 100_000)+"a = 1", deep))
}

// A list has one text, whatever its writer escaped; what needs an escape keeps it.
func TestEscapesInTexts(t *testing.T) {
	for raw, want := range map[string]string{
		`["\u00e9", "\ud83d\ude00", "a\/b"]`:        `["é","😀","a/b"]`,
		`{"\u00c9": "\u0022\u005c\u000a\n\\u00e9"}`: `{"É":"\u0022\u005c\u000a\n\\u00e9"}`,
		`["\ud83d", "\ud83dx", "\ud83d\u0041"]`:     `["\ud83d","\ud83dx","\ud83dA"]`,
	} {
		want = strings.ReplaceAll(want, `\U0001F600`, "\U0001F600")
		v, err := condition.ValueOf(json.RawMessage(raw))
		require.NoError(t, err)
		require.Equal(t, want, v.Text)
	}
}
