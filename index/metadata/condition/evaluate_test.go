package condition

import (
	"context"
	"errors"
	"fmt"
	"regexp/syntax"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/countdown"
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

func bindText(t *testing.T, text string, params ...any) *Condition {
	t.Helper()
	e, err := Parse(text)
	require.NoError(t, err)
	c, err := e.Bind(params...)
	require.NoError(t, err)
	return c
}

// What would take hours on one document ends soon after the context has.
func TestEvaluationEndsWithItsContext(t *testing.T) {
	letters := strings.Repeat("a", 1<<20)
	payload := []byte(`{"t": "` + letters + `"}`)
	likes := strings.Repeat(" OR t LIKE '%a%b%c%d%e%zzz'", MaxTests-1)
	for _, c := range []*Condition{
		bindText(t, "t LIKE ?", "%"+strings.Repeat("a_", 24990)+"b"),
		bindText(t, "t REGEXP ?", strings.Repeat("(a?){100}", 100)+"b"),
		bindText(t, "NOT t REGEXP ?", "x*(a|aa)+b$"),
		bindText(t, "t = 'x'"+likes),
		bindText(t, "t <> 'x'"+strings.ReplaceAll(likes, " OR ", " AND NOT ")),
	} {
		ctx := countdown.New(3)
		e := NewEvaluation(ctx)
		matched, err := e.Match(c, new(Evaluation).Document(payload, "", 0))
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, matched)
		require.Equal(t, -1, ctx.Remaining(), "it is asked no more once it has ended")
		_, err = e.Match(c, new(Evaluation).Document(payload, "", 0))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, -1, ctx.Remaining())
	}
	text := Value{Kind: Text, Text: letters}
	e := NewEvaluation(countdown.New(2))
	_, err := e.Truth(bindText(t, "t LIKE ?", "%"+strings.Repeat("a", 40000)+"b").root.test, text)
	require.ErrorIs(t, err, context.Canceled)
}

// A pattern finds the same where the context is looked at and where it is not.
func TestPatternsInLongTexts(t *testing.T) {
	letters := strings.Repeat("aé\xff", effort.Cases(1<<17, 1<<19))
	for pattern, want := range map[string]Truth{
		"a.+b": False, "a.*b$": False, "^a.*c$": True, "(aé){2}": False, `\x{FFFD}a`: True, "é.a[^a]": True, `\bc\b`: True, `\Bc`: False, `(?i)C\z`: True,
	} {
		test := bindText(t, "t REGEXP ?", pattern).root.test
		v := Value{Kind: Text, Text: letters + "c"}
		require.Greater(t, test.programSize*len(v.Text), maxUninterrupted)
		require.Equal(t, want, test.Truth(v), pattern)
		got, err := NewEvaluation(context.Background()).Truth(test, v)
		require.NoError(t, err)
		require.Equal(t, want, got, pattern)
	}
}

// Few bytes of a pattern can stand for very much.
func TestLargePatterns(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, c := range []struct {
		text   string
		params []any
	}{
		{"a REGEXP ?", []any{strings.Repeat("(a{0,1000})", 1000)}},
		{"a REGEXP ?", []any{"((a{10}){10}){10}" + strings.Repeat("((a{10}|b{10}){10}|c){10}", 64)}},
		{"a REGEXP ?", []any{strings.Repeat(`\pL`, 16000)}},
		{"a REGEXP ?", []any{strings.Repeat(`\PL`, 1030)}},
		{"a REGEXP ?", []any{strings.Repeat(`([^\p{Greek}\p{Cyrillic}\p{Latin}]x){1000}`, 10)}},
		{"a REGEXP ? OR a REGEXP ? OR b REGEXP ?", []any{strings.Repeat("a{1000}", 30), strings.Repeat("a{1000}", 20), strings.Repeat("a{1000}", 16)}},
	} {
		e, err := Parse(c.text)
		require.NoError(t, err)
		_, err = e.Bind(c.params...)
		require.ErrorIs(t, err, ErrTooComplex, "%.80v", c.params)
		require.ErrorIs(t, err, ErrParameter)
		var fault *Error
		require.ErrorAs(t, err, &fault)
		require.Less(t, len(err.Error()), 300)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
	var words []string
	for i := range 4000 {
		words = append(words, fmt.Sprint("word", i))
	}
	for _, pattern := range []string{strings.Join(words, "|"), `^\p{L}+(\s\p{L}+){0,100}$`, "[a-z]{1,1000}@[a-z]{1,1000}", "(?i)(one|two|three){1,500}"} {
		bindText(t, "a REGEXP ?", pattern)
	}
}

// The size of a program is told before there is one.
func TestProgramSize(t *testing.T) {
	for _, pattern := range []string{
		"", "a", "abc", "a*b+c?", "(a|bc|d)(?:e|f)", "(a{0,1000})", "(a{7,1000})(b{3,})(c{5})", "((a{2}b){3}|c*){4,9}x", "^a.$|\\b[a-z]{3}\\z", "(?i)abc{1,9}", "((a?){10}){10}", "(|a){100}",
	} {
		tree, err := syntax.Parse(pattern, syntax.Perl)
		require.NoError(t, err)
		estimated := estimateProgram(tree)
		program, err := syntax.Compile(tree.Simplify())
		require.NoError(t, err)
		require.LessOrEqual(t, len(program.Inst), estimated+4, pattern)
		require.LessOrEqual(t, estimated, 2*len(program.Inst)+4, pattern)
	}
}

func TestLargeConditions(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset int
		says   string
	}{
		{"a < 1" + strings.Repeat(" OR a < 1", MaxTests), 5 + 9*(MaxTests-1) + 4, "more than 10000 tests"},
		{"a IN (1" + strings.Repeat(",1", MaxWords/2) + ")", 0, "more than 524288 words and signs"},
		{"a = '" + strings.Repeat("x", MaxText) + "'", MaxText, "at most 4194304 are possible"},
	} {
		_, err := Parse(c.text)
		require.ErrorIs(t, err, ErrTooComplex)
		require.ErrorIs(t, err, ErrSyntax)
		require.ErrorContains(t, err, c.says)
		var fault *Error
		require.True(t, errors.As(err, &fault))
		if c.offset > 0 {
			require.Equal(t, c.offset, fault.Offset)
		}
		require.Less(t, len(err.Error()), 300)
	}
	_, err := Parse("a < 1" + strings.Repeat(" OR a < 1", MaxTests-1))
	require.NoError(t, err)
	_, err = Parse("a IN (1" + strings.Repeat(",1", MaxWords/2-10) + ")")
	require.NoError(t, err)
}

// Equalities of one field that are joined are one list, with the same truths.
func TestEqualitiesAreOneList(t *testing.T) {
	for text, want := range map[string]string{
		"a = 1 OR a = 2":                                  "a",
		"a = 1 OR b = 2 OR a = 3 OR b IN (4, 5)":          "(a OR b)",
		"a = 1 OR (a = 2 OR (a IN () OR c > 1)) OR a = 2": "(a OR c)",
		"a <> 1 AND a <> 2 AND NOT a IN (3)":              "NOT a",
		"a = 1 AND a = 2":                                 "(a AND a)",
		"a <> 1 OR a <> 2":                                "(NOT a OR NOT a)",
		"(a = 1 OR a = 2) AND (b = 1 OR b = 2)":           "(a AND b)",
		"a = 1 OR a LIKE 'x' OR a = NULL":                 "(a OR a)",
		"NOT (a = 1 OR a = 2) AND a <> 3":                 "NOT a",
	} {
		require.Equal(t, want, bindText(t, text).root.shape(), text)
	}
	values := []string{`1`, `2`, `3`, `"1"`, `"x"`, `null`, `2.0`, `-0.0`, `0`, `[1]`}
	lists := []string{"%s = 1", "%s = 'x'", "%s IN (2, 'y')", "%s IN ()", "%s = NULL", "%s IN (NULL, 3)", "%s = 0"}
	for _, join := range []string{"(%s) OR (%s)", "NOT (%s) AND NOT (%s)"} {
		for _, left := range lists {
			for _, right := range lists {
				text := fmt.Sprintf(join, fmt.Sprintf(left, "a"), fmt.Sprintf(right, "a"))
				apart := fmt.Sprintf(join, fmt.Sprintf(left, "a"), fmt.Sprintf(right, "b")) // b is as a
				for _, v := range values {
					d := new(Evaluation).Document(fmt.Appendf(nil, `{"a": %s, "b": %s}`, v, v), "", 0)
					require.Equal(t, bindText(t, apart).Truth(d), bindText(t, text).Truth(d), "%s of %s", text, v)
				}
			}
		}
	}
}

// shape is a node without operators and values.
func (b *boundNode) shape() string {
	switch b.join {
	case "":
		return string(b.test.Field)
	case joinNot:
		return "NOT " + b.children[0].shape()
	}
	var parts []string
	for _, p := range b.children {
		parts = append(parts, p.shape())
	}
	return "(" + strings.Join(parts, " "+b.join+" ") + ")"
}
