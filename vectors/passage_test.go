package vectors

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplitPassageID(t *testing.T) {
	for id, want := range map[string]struct {
		of string
		n  int
	}{
		"a#1": {"a", 1}, "b": {"b", -1}, "c#1#0": {"c#1", 0}, "x#": {"x#", -1}, "x#01": {"x#01", -1}, "x#-1": {"x#-1", -1}, "#3": {"", 3},
	} {
		of, n := SplitPassageID(id)
		require.Equal(t, want.of, of, id)
		require.Equal(t, want.n, n, id)
	}
}

func TestPassageOf(t *testing.T) {
	p := &Passage{Of: "a \"b\"", Number: 3, Start: 5, End: 9}
	for _, payload := range []string{"", "{}", ` { "text": "x" } `} {
		b, err := p.Payload([]byte(payload))
		require.NoError(t, err)
		back, err := PassageOf(p.ID(), b)
		require.NoError(t, err)
		require.Equal(t, p, back)
		_, err = PassageOf("other#3", b)
		require.ErrorIs(t, err, ErrFormat)
	}
	_, err := p.Payload([]byte(`["no object"]`))
	require.ErrorIs(t, err, ErrFormat)
	for _, none := range []string{"", "_passage", `"_passage"`, `{"a": "_passage"}`, `{"a": {"_passage": 1}}`} {
		got, err := PassageOf("a#0", []byte(none))
		require.NoError(t, err)
		require.Nil(t, got)
	}
	for _, bad := range []string{
		`{"_passage": 1}`, `{"_passage": {}}`, `{"_passage": {"of": "a", "n": 1}}`, `{"_passage": {"of": "a", "n": 0, "start": 2, "end": 1}}`,
		`{"_passage": {"of": "a", "n": 0, "more": 1}}`, `{"_passage": {"of": "", "n": 0}}`,
	} {
		_, err := PassageOf("a#0", []byte(bad))
		require.ErrorIs(t, err, ErrFormat, bad)
	}
}

// A name is the one that conditions go by, however it is written.
func TestPassageFieldIsNamedExactly(t *testing.T) {
	own := `{"of":"a","n":0,"start":0,"end":1}`
	for _, none := range []string{`{"_passages":1,"x":"_Passage"}`, `{"x":{"_PASSAGE":` + own + `},"passage":1,"_":2,"_passag":3}`} {
		got, err := PassageOf("a#0", []byte(none))
		require.NoError(t, err, none)
		require.Nil(t, got, none)
	}
	for _, one := range []string{`{"\u005fpassage":` + own + `}`, `{"_passa\u0067e":` + own + `}`} {
		got, err := PassageOf("a#0", []byte(one))
		require.NoError(t, err, one)
		require.Equal(t, &Passage{Of: "a", End: 1}, got, one)
	}
	for _, bad := range []string{
		`{"_passage":null}`, `{"\u005fpassage":{"of":"b"}}`, `{"_passage":{"OF":"a","n":0}}`, `{"_passage":` + own + `,"_passage":` + own + `}`,
		`{"_PASSAGE":` + own + `}`, `{"_Passage":1}`, `{"_\u0050assage":` + own + `}`, `{"_passa\u0047e":1}`, `{"_passage":` + own + `,"_PASSAGE":2}`,
	} {
		_, err := PassageOf("a#0", []byte(bad))
		require.ErrorIs(t, err, ErrFormat, bad)
	}
}
