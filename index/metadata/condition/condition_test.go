package condition_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/conditiontest"
)

func match(t *testing.T, text, payload string, params ...any) bool {
	t.Helper()
	return conditiontest.Bind(t, text, params...).Match(new(condition.Evaluation).Document([]byte(payload), "the id", 7))
}

func TestErrorsHaveAPlace(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset int
		says   string
	}{
		{"", 0, "a field is needed, at its end"},
		{"year", 4, "a comparison is needed, at its end"},
		{"tags CONTAINS 'a'", 5, "= is true of a list that contains the value"},
		{"year >", 6, "? is needed"},
		{"year = ?; DROP TABLE x", 8, "';' has no meaning here, at character 9"},
		{"year = ? -- all", 9, "comments are not allowed"},
		{"year /* */ = ?", 5, "comments are not allowed"},
		{"year = ? SELECT", 9, "AND, OR or the end is needed"},
		{"(year = ?", 9, ") is needed"},
		{"year = ?)", 8, "AND, OR or the end"},
		{"year NOT = ?", 9, "LIKE, REGEXP, BETWEEN or IN"},
		{"year BETWEEN ? OR ?", 15, "AND is needed"},
		{"year IN ?", 8, "( is needed"},
		{"year IN (?,)", 11, "? is needed"},
		{"year IN (? ?)", 11, ") is needed"},
		{"year IS 3", 8, "NULL is needed"},
		{"in = ?", 0, "the name IN must be in double quotes"},
		{"? = year", 0, "a field is needed"},
		{"1=1 AND year = ?", 0, "a field is needed"},
		{"1.0=1", 0, "a field is needed"},
		{`"year = ?`, 0, "this name has no closing quote"},
		{"ärger = 'x", 9, "this text has no closing quote, at character 9"},
		{"year = 3x", 7, "neither a number nor a name"},
		{"author..name = ?", 7, "a field is needed"},
		{"year === ?", 7, "a value is needed"},
		{"year = year", 7, "a value is needed"},
		{"year = +'x'", 7, "a value is needed"},
		{"a = ? AND \x00", 10, `'\x00' has no meaning here`},
		{"a = '\xff'", 0, "it is not UTF-8"},
		{strings.Repeat("(", 1000), 200, "nested more than 200 deep"},
		{strings.Repeat("NOT ", 1000), 800, "nested more than 200 deep"},
		{strings.Repeat(" ", 5<<20), 4 << 20, "at most 4194304 are possible"},
	} {
		_, err := condition.Parse(c.text)
		var fault *condition.Error
		require.ErrorAs(t, err, &fault, "%.80q", c.text)
		require.ErrorIs(t, err, condition.ErrSyntax)
		require.Equal(t, c.offset, fault.Offset, "%.80q: %v", c.text, err)
		require.ErrorContains(t, err, strings.TrimSuffix(c.says, "? is needed"))
		require.Less(t, len(err.Error()), 300)
	}
}

func TestPlaceholdersOnly(t *testing.T) {
	for _, text := range []string{"a = 1", "a = 'x'", "a = NULL", "a IN (?, 2)", "a BETWEEN ? AND 3", "a LIKE TRUE", "a = -1"} {
		_, err := condition.ParsePlaceholders(text)
		require.ErrorIs(t, err, condition.ErrSyntax, text)
		_, err = condition.Parse(text)
		require.NoError(t, err)
	}
	for text, want := range map[string]bool{"1=1": true, "0 = 0": true, "1 <> 1": false, "1<2": true, "3 >= 4": false} {
		e, err := condition.ParsePlaceholders(text)
		require.NoError(t, err, text)
		c, err := e.Bind()
		require.NoError(t, err)
		require.Equal(t, want, c.Match(new(condition.Evaluation).Document(nil, "a", 0)), text)
	}
}

func TestParametersAreChecked(t *testing.T) {
	e, err := condition.Parse("a = ? AND b LIKE ? OR c REGEXP ?")
	require.NoError(t, err)
	require.Equal(t, 3, e.Params())
	for _, c := range []struct {
		params []any
		offset int
		says   string
	}{
		{nil, 4, "0 parameters for 3 question marks"},
		{[]any{1, 2}, 31, "2 parameters for 3 question marks"},
		{[]any{1, 2, 3, 4}, 32, "4 parameters for 3 question marks, at its end"},
		{[]any{struct{}{}, "x", "x"}, 4, "parameter 1: a struct {}"},
		{[]any{1, "\xff", "x"}, 17, "parameter 2: text that is not UTF-8"},
		{[]any{1, json.Number("x"), "x"}, 17, "is not JSON"},
		{[]any{1, "x", "("}, 31, "missing closing )"},
		{[]any{1, "x", strings.Repeat("x", 50001)}, 31, "a pattern of 50001 bytes"},
		{[]any{1, strings.Repeat("x", 50001), "x"}, 17, "a pattern of 50001 bytes"},
	} {
		_, err := e.Bind(c.params...)
		var fault *condition.Error
		require.ErrorAs(t, err, &fault, c.says)
		require.ErrorIs(t, err, condition.ErrParameter)
		require.Equal(t, c.offset, fault.Offset, c.says)
		require.ErrorContains(t, err, c.says)
	}
}

func TestFieldsOfACondition(t *testing.T) {
	e, err := condition.Parse(`Year = ? AND author . Name IS NULL OR "a.B" IN (?) AND YEAR < ? AND _ID = ? AND "in"."x""y" = ?`)
	require.NoError(t, err)
	want := []condition.Field{"year", "author.name", "a.b", "_id", `"in"."x""y"`}
	require.Equal(t, want, e.Fields())
	require.NoError(t, e.Check(func(condition.Field) bool { return true }))
	err = e.Check(func(f condition.Field) bool { return f != "a.b" && f != "_id" })
	require.ErrorIs(t, err, condition.ErrUnknownField)
	require.ErrorContains(t, err, `unknown field a.b, at character 39`)
}

func TestFieldsAndKeysAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.StringOf(rapid.SampledFrom([]rune(`ab_1."Aä `))), 1, 4).Draw(t, "keys")
		lower := strings.Split(strings.ReplaceAll(strings.Join(keys, "."), "A", "a"), ".")
		f := condition.MakeField(keys...)
		require.Equal(t, lower, f.Keys())
		e, err := condition.Parse(string(f) + " IS NULL") // the form is that of conditions
		require.NoError(t, err)
		require.Equal(t, []condition.Field{f}, e.Fields())
	})
}

func TestValuesOfADocument(t *testing.T) {
	const payload = ` {"Year": 1999, "year": 2001, "_id": "other", "author": {"Name": "Ann", "born": {"in": 1970}},
		"a.b": true, "tags": [ "x", {"y": 1} ], "esc": "\u00e9\n", "none": null, "big": 1e999, "long": 9223372036854775808} `
	for _, text := range []string{
		"year = 2001", // the key in lower case counts
		"_id = 'the id'", "_subset_ = 7", "author.name = 'Ann'", "AUTHOR.BORN.IN < 1971", `"a.b" = TRUE`, "a.b = TRUE", `"author.NAME" = 'Ann'`,
		`tags = '["x",{"y":1}]'`, `tags LIKE '%"x"%'`, `author.born = '{"in":1970}'`, "esc = 'é\n'", "none IS NULL", "missing IS NULL",
		"author.born.in.more IS NULL", "year.x IS NULL", "big > 1e308", "long = 9223372036854775808.0",
	} {
		require.True(t, match(t, text, payload), text)
	}
	for _, payload := range []string{"", "text", "[1]", `"year"`, "{", "null", "3"} {
		require.True(t, match(t, "year IS NULL AND _subset_ = 7", payload), payload)
	}
}

func TestParametersOfAllTypes(t *testing.T) {
	const payload = `{"n": 3, "s": "3", "r": 3.0, "list": [1,"a"], "map": {"k": true}}`
	type word string
	for _, p := range []any{3, int8(3), uint64(3), float32(3), 3.0, "3", word("3"), json.Number("3"), json.RawMessage(" 3 "), " 3"} {
		require.True(t, match(t, "n = ? AND r = ?", payload, p, p), "%T", p)
	}
	require.True(t, match(t, "s = ?", payload, 3))
	require.False(t, match(t, "s = ?", payload, 3.0), "the text of a real number is 3.0")
	require.True(t, match(t, "list = ?", payload, []any{1, "a"}))
	require.True(t, match(t, "map = ?", payload, map[string]any{"k": true}))
	require.True(t, match(t, "n < ?", payload, uint64(math.MaxUint64)))
	require.False(t, match(t, "n = ?", payload, nil))
	require.False(t, match(t, "n <> ?", payload, math.NaN()))
	v, err := condition.ValueOf(condition.Value{Kind: condition.Integer, Int: 3})
	require.NoError(t, err)
	require.Equal(t, "3", v.String())
}

// Zero has no sign, wherever it comes from.
func TestZeroIsOneValue(t *testing.T) {
	negative := math.Copysign(0, -1)
	for _, payload := range []string{`{"n": -0.0}`, `{"n": 0.0}`, `{"n": -0}`, `{"n": 0}`, `{"n": -1e-999}`} {
		for _, p := range []any{0, 0.0, negative, "-0.0", json.Number("-0e0"), condition.Value{Kind: condition.Real, Real: negative}} {
			for _, text := range []string{"n = ?", "n >= ?", "n IN (7, ?)", "n BETWEEN ? AND 1", "NOT n < ?"} {
				require.True(t, match(t, text, payload, p), "%s of %s, %v", text, payload, p)
			}
			require.False(t, match(t, "n > ? OR n < -0.0", payload, p))
		}
		v := new(condition.Evaluation).Document([]byte(payload), "", 0).Value("n")
		require.False(t, math.Signbit(v.Real), payload)
	}
	v, err := condition.ValueOf(condition.Value{Kind: condition.Real, Real: math.NaN()})
	require.NoError(t, err)
	require.Equal(t, condition.Null, v.Kind)
}

func TestFieldsOfADocument(t *testing.T) {
	d := new(condition.Evaluation).Document([]byte(`{"b": {"x": {"deep": {"er": 1}}, "y": [1]}, "a": null, "_id": 3, "A": 1}`), "", 0)
	var got []string
	d.Fields(3, func(f condition.Field, v condition.Value, _ condition.Form) bool {
		got = append(got, string(f)+"="+v.String())
		return true
	})
	require.Equal(t, []string{"a=", `b={"x":{"deep":{"er":1}},"y":[1]}`, `b.x={"deep":{"er":1}}`, `b.x.deep={"er":1}`, "b.y=[1]", "b.y=1"}, got)
	n := 0
	require.False(t, d.Fields(3, func(condition.Field, condition.Value, condition.Form) bool { n++; return n < 3 }))
	require.Equal(t, 3, n)
}

func TestMerge(t *testing.T) {
	fields := condition.Fields{"lang": json.RawMessage(`"de"`), "YEAR": json.RawMessage("2000"), "<new>": json.RawMessage("[1]")}
	require.NoError(t, fields.Validate())
	for payload, want := range map[string]string{
		"":                                  `{"<new>":[1],"YEAR":2000,"lang":"de"}`,
		" {} ":                              `{"<new>":[1],"YEAR":2000,"lang":"de"}`,
		`{"year": 1, "text": "a  b\u00e9"}`: `{"year":2000,"text":"a  b\u00e9","<new>":[1],"lang":"de"}`,
		`{"Lang": null, "lang": 1, "x": {"lang": 1.50}}`: `{"Lang":"de","lang":"de","x":{"lang": 1.50},"<new>":[1],"YEAR":2000}`,
	} {
		got, err := fields.Merge([]byte(payload))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	for _, payload := range []string{"text", "[1]", "null", `"x"`, "{"} {
		_, err := fields.Merge([]byte(payload))
		require.ErrorIs(t, err, condition.ErrNotObject, payload)
	}
	dotted := condition.Fields{"a.B": json.RawMessage("1")}
	for payload, want := range map[string]string{
		`{"a.b": 2, "a": 3}`: `{"a.b":1,"a":3}`, `{"a": {"c": 2}}`: `{"a":{"c": 2},"a.B":1}`, `{"a": [1, {"c": 2}]}`: `{"a":[1, {"c": 2}],"a.B":1}`,
		`{"a": {"b": 2}}`: "", `{"a": [{"c": 1}, {"B": null}]}`: "", `{"a.b": 1, "a": {"b": 2}}`: "",
	} {
		for _, set := range []condition.Fields{dotted, {"A.b": nil}} {
			got, err := set.Merge([]byte(payload))
			if want == "" {
				require.ErrorIs(t, err, condition.ErrNested, payload)
				continue
			}
			require.NoError(t, err)
			if set["a.B"] != nil {
				require.Equal(t, want, string(got))
			}
			require.Equal(t, set["a.B"] != nil, new(condition.Evaluation).Document(got, "", 0).Has("a.b"), payload)
		}
	}
	for says, f := range map[string]condition.Fields{
		`fields "A" and "a" differ in case only`: {"a": json.RawMessage("1"), "A": json.RawMessage("1")},
		`field "_ID" cannot be set`:              {"_ID": json.RawMessage("1")},
		`field "_subset_" cannot be set`:         {"_subset_": json.RawMessage("1")},
		`field "x": its value "{": `:             {"x": json.RawMessage("{")},
		`field "x": its value "[1e999]": `:       {"x": json.RawMessage("[1e999]")},
		`field "x": its value "\"\\udc00\"": `:   {"x": json.RawMessage(`"\udc00"`)},
		`field "\xff" is not UTF-8`:              {"\xff": json.RawMessage("1")},
	} {
		require.ErrorContains(t, f.Validate(), says)
	}
}

// Whatever is merged can be found, and no other field changes.
func TestMergeSetsWhatItSays(t *testing.T) {
	values := rapid.SampledFrom([]string{"1", "2.5", `"x"`, "null", "true", `[1, 2]`, `{"a": 1}`})
	object := rapid.MapOf(rapid.SampledFrom([]string{"a", "A", "b", "c", "ä", ""}), values)
	rapid.Check(t, func(t *rapid.T) {
		parts := func(m map[string]string) condition.Fields {
			f := condition.Fields{}
			for k, v := range m {
				f[k] = json.RawMessage(v)
			}
			return f
		}
		was, set := parts(object.Draw(t, "was")), parts(object.Draw(t, "set"))
		if rapid.Bool().Draw(t, "null removes") {
			set = set.WithNullRemoving()
		}
		if set.Validate() != nil {
			t.Skip("names that differ in case only")
		}
		payload, err := json.Marshal(was)
		require.NoError(t, err)
		merged, err := set.Merge(payload)
		require.NoError(t, err)
		left := map[string]json.RawMessage{}
		require.True(t, merged == nil || json.Unmarshal(merged, &left) == nil)
		for key, value := range set {
			for name := range left {
				require.False(t, len(value) == 0 && condition.MakeField(key) == condition.MakeField(name), "%s is left of %s", name, payload)
			}
		}
		before, after := new(condition.Evaluation).Document(payload, "", 0), new(condition.Evaluation).Document(merged, "", 0)
		updated, err := json.Marshal(set)
		require.NoError(t, err)
		wanted := new(condition.Evaluation).Document(updated, "", 0)
		touched := map[condition.Field]bool{}
		for key := range set {
			touched[condition.MakeField(key)] = true
		}
		for _, key := range []string{"a", "b", "c", "ä", ""} {
			f := condition.MakeField(key)
			want := before.Value(f)
			if touched[f] {
				want = wanted.Value(f)
			}
			require.Equal(t, want, after.Value(f), "%s of %s with %s", f, payload, updated)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"year >= ? AND lang IN (?, ?)", "NOT (a = 'x' OR \"b c\".d LIKE ?)", "1=1", "a BETWEEN -1.5e3 AND +.5", "a IS NOT NULL", "a REGEXP '('", "a = 'it''s'",
		"a LIKE '%!%' ESCAPE '!'", "a == 'é' OR a LIKE 'e\u0301_' escape 'é'", `a = "b"`, "'a' == 1",
	} {
		f.Add(text, `{"a": 1, "year": "2000"}`)
	}
	f.Fuzz(func(t *testing.T, text, payload string) {
		e, err := condition.Parse(text)
		if err != nil {
			var fault *condition.Error
			if !errors.As(err, &fault) || !errors.Is(err, condition.ErrSyntax) || fault.Offset < 0 || fault.Offset > len(text) || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		c, err := e.Bind(make([]any, e.Params())...)
		if err != nil {
			if !errors.Is(err, condition.ErrParameter) {
				t.Fatal(err)
			}
			return
		}
		c.Match(new(condition.Evaluation).Document([]byte(payload), "id", 1))
		strict, err := condition.ParsePlaceholders(text)
		if err == nil && !slices.Equal(strict.Fields(), e.Fields()) {
			t.Fatalf("%q names %v with and %v without literals", text, e.Fields(), strict.Fields())
		}
	})
}

// A key of any text can be named in double quotes, and is the field that it names.
func FuzzField(f *testing.F) {
	for _, key := range []string{"year", "ptex.fullbanner", "Page Number", `a "b"`, "", `"`, `""`, "in", "1st", "größe", "a\x00b", "--", "/*", "'", "?"} {
		f.Add(key, "inner")
	}
	f.Fuzz(func(t *testing.T, key, inner string) {
		if !utf8.ValidString(key) || !utf8.ValidString(inner) {
			return
		}
		quoted := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
		for _, keys := range [][]string{{key}, {key, inner}} {
			want := condition.MakeField(keys...)
			text := quoted(key)
			var payload any = map[string]any{key: 7}
			if len(keys) == 2 {
				text += "." + quoted(inner)
				payload = map[string]any{key: map[string]any{inner: 7}}
			}
			for _, written := range []string{text, string(want)} {
				e, err := condition.Parse(written + " = 7")
				if err != nil || !slices.Equal(e.Fields(), []condition.Field{want}) {
					t.Fatalf("%q names %v, not %v: %v", written, e, want, err)
				}
				got, err := condition.ParseField(written)
				if err != nil || got != want || condition.MakeField(got.Keys()...) != want {
					t.Fatalf("%q is the field %v, not %v: %v", written, got, want, err)
				}
				c, err := e.Bind()
				raw, _ := json.Marshal(payload)
				if own := want == condition.FieldID || want == condition.FieldOrdinal; err != nil || !own && !c.Match(new(condition.Evaluation).Document(raw, "a", 1)) {
					t.Fatalf("%q is not true of %s: %v", written, raw, err)
				}
			}
		}
	})
}

// Payloads are read as encoding/json reads them.
func FuzzDocument(f *testing.F) {
	for _, payload := range []string{
		`{"a": 1, "A": [1, {"b": "}"}], "b\u0041\"": {"c": null}}`, ` {} `, `{"a":"\\"}`, `[1]`, `{"a":1}x`, `{"a":{"a":[]},"a":2e5}`, "{\"\xff\":\"\xff\"}",
		`{"a.b": 1, "a": [{"b": [2, null]}, {"B": 3}, [{"b": 4}]], "_id": {"x": 1}, "_id.x": 2, "": {"": 0}, "..": true}`,
	} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		d := new(condition.Evaluation).Document(payload, "", 0)
		got := map[condition.Field][]string{}
		d.Fields(math.MaxInt, func(f condition.Field, v condition.Value, form condition.Form) bool {
			if form != condition.WholeArray {
				got[f] = append(got[f], condition.NewLiteral(v, form).String())
			} else if got[f] == nil {
				got[f] = []string{}
			}
			return true
		})
		for f, values := range got {
			want, there := conditiontest.Literals(payload, f)
			texts := []string{}
			for _, raw := range want {
				v, err := condition.ValueOf(raw)
				require.NoError(t, err)
				form := condition.Plain
				switch raw[0] {
				case 't', 'f':
					form = condition.Boolean
				case '[', '{':
					form = condition.Nested
				}
				texts = append(texts, condition.NewLiteral(v, form).String())
			}
			var read []string
			has, err := d.Literals(f, func(l condition.Literal) error {
				read = append(read, l.String())
				return nil
			})
			require.NoError(t, err)
			require.ElementsMatch(t, texts, read, "%q: %s", payload, f)
			require.ElementsMatch(t, texts, values, "%q: %s", payload, f)
			require.True(t, there && has && d.Has(f), "%q: %s", payload, f)
		}
		for key := range members(payload) {
			f := condition.MakeField(key)
			_, there := got[f]
			require.Equal(t, f != condition.FieldID && f != condition.FieldOrdinal, there, "%q: %s", payload, f)
		}
	})
}

// members are those of an object, by encoding/json.
func members(payload []byte) (object map[string]json.RawMessage) {
	if json.Unmarshal(payload, &object) != nil {
		return nil
	}
	return object
}

// A lenient condition takes fields that nothing has for NULL; the one that it was made
// of still does not.
func TestLenient(t *testing.T) {
	e, err := condition.ParsePlaceholders("year > ? OR nowhere IS NULL")
	require.NoError(t, err)
	c, err := e.Bind(2000)
	require.NoError(t, err)
	none := func(condition.Field) bool { return false }
	l := c.Lenient()
	require.NoError(t, l.Check(none))
	require.ErrorIs(t, c.Check(none), condition.ErrUnknownField)
	require.True(t, l.Match(new(condition.Evaluation).Document([]byte(`{"year": 1}`), "a", 0)))
	require.Equal(t, c.String(), l.String())
}
