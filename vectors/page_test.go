package vectors

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPageOf(t *testing.T) {
	for payload, want := range map[string]*Page{
		`{"image": "a.png"}`:                               {Image: "a.png"},
		`{"image": "a.png", "grid": null}`:                 {Image: "a.png"},
		`{"image": "a.png", "grid": [2, 3]}`:               {Image: "a.png", Grid: &Grid{2, 3, 0}},
		`{"grid": [2,3,4], "\u0069mage": "https://e/x y"}`: {Image: "https://e/x y", Grid: &Grid{2, 3, 4}},
		`{"grid": "A4"}`:                                   nil,
		`{"image": 7, "grid": "A4"}`:                       nil,
		`{"image": {"image": "x"}, "grid": [0]}`:           nil,
		`["image"]`:                                        nil,
		`"image"`:                                          nil,
		`{"image": "a"`:                                    nil,
		``:                                                 nil,
		`{"a": {"image": "x", "grid": 3}, "image": null}`:    nil,
		`{"image": "a", "grid": [1024, 1024]}`:               {Image: "a", Grid: &Grid{1024, 1024, 0}},
		`{"image": "a", "grid": [1, 1], "Grid": "anything"}`: {Image: "a", Grid: &Grid{1, 1, 0}},
	} {
		p, err := PageFromPayload([]byte(payload))
		require.NoError(t, err, payload)
		require.Equal(t, want, p, payload)
	}
	for _, grid := range []string{`"2x3"`, `[2]`, `[2,3,4,5]`, `[0,3]`, `[2,-3]`, `[2,3,-1]`, `[2.5,3]`, `[1025,1024]`, `[2,null]`, `{}`, `[9223372036854775807,2]`, `[3,9223372036854775807]`} {
		_, err := PageFromPayload([]byte(`{"image": "a", "grid": ` + grid + `}`))
		require.ErrorIs(t, err, ErrFormat, grid)
	}
}

func TestGrid(t *testing.T) {
	g := Grid{Rows: 3, Columns: 5, First: 2}
	require.Equal(t, 17, g.End())
	require.NoError(t, g.CheckTokens(17))
	require.ErrorIs(t, g.CheckTokens(16), ErrShape)
	require.Equal(t, &Grid{Rows: 2, Columns: 3, First: 2}, g.Tiles(2))
	for _, g := range []Grid{g, {Rows: 1, Columns: 1}} {
		b, err := json.Marshal(g)
		require.NoError(t, err)
		var back Grid
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, g, back)
	}
}

func FuzzPageOf(f *testing.F) {
	f.Add([]byte(`{"image": "a.png", "grid": [2, 3, 4]}`))
	f.Add([]byte(`{"\u0069mage": "a", "grid": [1e2, 3]}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, err := PageFromPayload(payload)
		if err != nil || p == nil || p.Grid == nil {
			return
		}
		require.Positive(t, p.Grid.Cells())
		require.LessOrEqual(t, p.Grid.Cells(), maxCells)
		b, err := json.Marshal(p)
		require.NoError(t, err)
		again, err := PageFromPayload(b)
		require.NoError(t, err)
		require.Equal(t, p.Grid, again.Grid)
	})
}

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
	p := &Passage{ParentID: "a \"b\"", Number: 3, Start: 5, End: 9}
	for _, payload := range []string{"", "{}", ` { "text": "x" } `} {
		b, err := p.Payload([]byte(payload))
		require.NoError(t, err)
		back, err := PassageFromPayload(p.ID(), b)
		require.NoError(t, err)
		require.Equal(t, p, back)
		_, err = PassageFromPayload("other#3", b)
		require.ErrorIs(t, err, ErrFormat)
	}
	_, err := p.Payload([]byte(`["no object"]`))
	require.ErrorIs(t, err, ErrFormat)
	for _, none := range []string{"", "_passage", `"_passage"`, `{"a": "_passage"}`, `{"a": {"_passage": 1}}`} {
		got, err := PassageFromPayload("a#0", []byte(none))
		require.NoError(t, err)
		require.Nil(t, got)
	}
	for _, bad := range []string{
		`{"_passage": 1}`, `{"_passage": {}}`, `{"_passage": {"of": "a", "n": 1}}`, `{"_passage": {"of": "a", "n": 0, "start": 2, "end": 1}}`,
		`{"_passage": {"of": "a", "n": 0, "more": 1}}`, `{"_passage": {"of": "", "n": 0}}`,
	} {
		_, err := PassageFromPayload("a#0", []byte(bad))
		require.ErrorIs(t, err, ErrFormat, bad)
	}
}

// A name is the one that conditions go by, however it is written.
func TestPassageFieldIsNamedExactly(t *testing.T) {
	own := `{"of":"a","n":0,"start":0,"end":1}`
	for _, none := range []string{`{"_passages":1,"x":"_Passage"}`, `{"x":{"_PASSAGE":` + own + `},"passage":1,"_":2,"_passag":3}`} {
		got, err := PassageFromPayload("a#0", []byte(none))
		require.NoError(t, err, none)
		require.Nil(t, got, none)
	}
	for _, one := range []string{`{"\u005fpassage":` + own + `}`, `{"_passa\u0067e":` + own + `}`} {
		got, err := PassageFromPayload("a#0", []byte(one))
		require.NoError(t, err, one)
		require.Equal(t, &Passage{ParentID: "a", End: 1}, got, one)
	}
	for _, bad := range []string{
		`{"_passage":null}`, `{"\u005fpassage":{"of":"b"}}`, `{"_passage":{"OF":"a","n":0}}`, `{"_passage":` + own + `,"_passage":` + own + `}`,
		`{"_PASSAGE":` + own + `}`, `{"_Passage":1}`, `{"_\u0050assage":` + own + `}`, `{"_passa\u0047e":1}`, `{"_passage":` + own + `,"_PASSAGE":2}`,
	} {
		_, err := PassageFromPayload("a#0", []byte(bad))
		require.ErrorIs(t, err, ErrFormat, bad)
	}
}
