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
		p, err := PageOf([]byte(payload))
		require.NoError(t, err, payload)
		require.Equal(t, want, p, payload)
	}
	for _, grid := range []string{`"2x3"`, `[2]`, `[2,3,4,5]`, `[0,3]`, `[2,-3]`, `[2,3,-1]`, `[2.5,3]`, `[1025,1024]`, `[2,null]`, `{}`, `[9223372036854775807,2]`, `[3,9223372036854775807]`} {
		_, err := PageOf([]byte(`{"image": "a", "grid": ` + grid + `}`))
		require.ErrorIs(t, err, ErrFormat, grid)
	}
}

func TestGrid(t *testing.T) {
	g := Grid{Rows: 3, Columns: 5, First: 2}
	require.Equal(t, 17, g.End())
	require.NoError(t, g.Check(17))
	require.ErrorIs(t, g.Check(16), ErrShape)
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
		p, err := PageOf(payload)
		if err != nil || p == nil || p.Grid == nil {
			return
		}
		require.Positive(t, p.Grid.Cells())
		require.LessOrEqual(t, p.Grid.Cells(), maxCells)
		b, err := json.Marshal(p)
		require.NoError(t, err)
		again, err := PageOf(b)
		require.NoError(t, err)
		require.Equal(t, p.Grid, again.Grid)
	})
}
