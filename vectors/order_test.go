package vectors

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSortNumbered(t *testing.T) {
	for _, c := range []struct{ names, want string }{
		{"0 1 10 11 2 3", "0 1 2 3 10 11"},
		{"doc10 doc2 doc0", "doc0 doc2 doc10"},
		{"0 3 1", "0 1 3"},
		{"00 12 01", "00 01 12"},
		{"-1 10 0 -10", "-10 -1 0 10"},
		{"s1_d2 s10_d0 s2_d0 s1_d10", "s1_d2 s1_d10 s2_d0 s10_d0"},
		{"train-00010-of-00012 train-00002-of-00012", "train-00002-of-00012 train-00010-of-00012"},
		{"99999999999999999999999 100000000000000000000000", "99999999999999999999999 100000000000000000000000"},
		{"a.10.npy a.9.npy", "a.9.npy a.10.npy"},
		{"one", "one"},
		{"b a", ""},
		{"0 a", ""},
		{"doc1 dok0", ""},
		{"7 07", ""},
		{"0 -0", ""},
		{"1 a1", ""},
		{"-1 a-1", ""},
		{"-", "-"},
	} {
		names := strings.Fields(c.names)
		ok := SortNumbered(names)
		require.Equal(t, c.want != "", ok, c.names)
		if !ok {
			c.want = c.names
		}
		require.Equal(t, c.want, strings.Join(names, " "))
	}
}

// TestSortNumberedIsAnOrder: whatever order names come in, they leave in one, that of their numbers.
func TestSortNumberedIsAnOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		form := []string{"%d", "%05d", "d%d", "-%d-", "%d.npy", "a1b%d", "é%dü"}[r.IntN(7)]
		var want []string
		for i, at := 0, r.IntN(3); i < 2+r.IntN(30); i++ {
			want = append(want, fmt.Sprintf(form, at))
			at += 1 + r.IntN(30)
		}
		got := slices.Clone(want)
		r.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		require.True(t, SortNumbered(got))
		require.Equal(t, want, got)
	}
}

func FuzzSortNumbered(f *testing.F) {
	f.Add("0 1 10 2", int64(1))
	f.Add("doc1 doc02 doc002", int64(2))
	f.Add("-1 -0 -10", int64(3))
	f.Add("a1b2 a01b10 a1b", int64(4))
	f.Fuzz(func(t *testing.T, text string, seed int64) {
		names := strings.Split(text, " ")
		a, b := slices.Clone(names), slices.Clone(names)
		rand.New(rand.NewPCG(uint64(seed), 0)).Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
		ok, same := SortNumbered(a), SortNumbered(b)
		if ok != same || ok && !slices.Equal(a, b) {
			t.Fatalf("%q and %q: %v and %v", a, b, ok, same)
		}
		if !ok && !slices.Equal(a, names) {
			t.Fatalf("%q became %q", names, a)
		}
		slices.Sort(a)
		slices.Sort(names)
		if !slices.Equal(a, names) {
			t.Fatal("names were lost")
		}
	})
}

// manyFile makes a container of one-token documents: document n has the vector (n, 1).
func manyFile(t *testing.T, format string, names ...string) string {
	if format == "npz" {
		var members []member
		for _, name := range names {
			members = append(members, stored(name, npyBytes(t, "<f4", []int{1, 2}, numberIn(name), 1)))
		}
		return tempFile(t, "d.npz", zipBytes(t, members...))
	}
	var header []string
	var data []byte
	for i, name := range names {
		header = append(header, fmt.Sprintf(`%q:{"dtype":"F32","shape":[1,2],"data_offsets":[%d,%d]}`, name, 8*i, 8*i+8))
		data = append(data, f32Bytes(numberIn(name), 1)...)
	}
	return tempFile(t, "d.safetensors", safetensorsBytes("{"+strings.Join(header, ",")+"}", data))
}

func numberIn(name string) float32 {
	n, _ := strconv.Atoi(strings.Trim(name, "abcdefghijklmnopqrstuvwxyz"))
	return float32(n)
}

// TestIDsByPosition: ids that are given by position go to the arrays in the order of the numbers in
// their names, for documents and queries, or the file is refused.
func TestIDsByPosition(t *testing.T) {
	sorted := []string{"0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9"} // as safetensors writes them
	natural := slices.Clone(sorted)
	require.True(t, SortNumbered(natural))
	ids := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "id%d\n", i)
		}
		return tempFile(t, "ids.txt", []byte(b.String()))
	}
	prefixed := make([]string, len(sorted))
	for i, n := range sorted {
		prefixed[i] = "doc" + n
	}
	for _, queries := range []bool{false, true} {
		for _, files := range []Files{
			{Vectors: manyFile(t, "safetensors", sorted...)},
			{Vectors: manyFile(t, "safetensors", prefixed...)},
			{Vectors: manyFile(t, "npz", natural...)},
		} {
			files.Queries, files.IDs = queries, ids(len(sorted))
			for i, d := range all(t, open(t, files)) {
				require.Equal(t, "id"+strconv.Itoa(i), d.ID)
				require.Equal(t, float32(i), d.Tokens[0])
			}
		}
		for _, c := range []struct{ path, reason string }{
			{manyFile(t, "safetensors", "a", "b"), `its arrays ("a", "b") have no order`},
			{manyFile(t, "safetensors", "1", "01"), "have no order"},
			{manyFile(t, "npz", sorted...), "in another order"},
		} {
			n := 2
			if strings.HasSuffix(c.path, "npz") {
				n = len(sorted)
			}
			_, err := Open(t.Context(), Files{Vectors: c.path, Queries: queries, IDs: ids(n)})
			require.ErrorIs(t, err, ErrID)
			require.ErrorContains(t, err, c.reason)
			require.ErrorContains(t, err, "their names are the ids")
			for _, d := range all(t, open(t, Files{Vectors: c.path, Queries: queries})) {
				require.Equal(t, numberIn(d.ID), d.Tokens[0])
			}
		}
	}
	var order []string
	for _, d := range all(t, open(t, Files{Vectors: manyFile(t, "safetensors", sorted...)})) {
		order = append(order, d.ID)
	}
	require.Equal(t, natural, order, "documents come in the order of the numbers")
	named := all(t, open(t, Files{Vectors: manyFile(t, "npz", "b", "a"), IDs: ids(2)}))
	require.Equal(t, "id0", named[0].ID)
}

// TestOneQuery: an array [tokens, dim] without lengths is one query if a query can be that long.
func TestOneQuery(t *testing.T) {
	q := func(shape ...int) string {
		return tempFile(t, "q.npy", npyBytes(t, "<f4", shape, make([]float32, shape[0]*shape[len(shape)-1]*max(1, len(shape)/3*shape[1]))...))
	}
	rows := func(most func() int, path string) (int, error) {
		s, err := Open(t.Context(), Files{Vectors: path, Queries: true, QueryLength: most})
		if err != nil {
			return 0, err
		}
		defer s.Close()
		return s.Rows(0), nil
	}
	most := func(n int) func() int { return func() int { return n } }
	for _, c := range []struct {
		rows int
		most func() int
		ok   bool
	}{
		{32, nil, true}, {33, nil, false}, {32, most(0), true}, {40, most(0), false},
		{40, most(48), true}, {49, most(48), false}, {25, most(24), false}, {24, most(24), true},
	} {
		n, err := rows(c.most, q(c.rows, 2))
		if c.ok {
			require.NoError(t, err)
			require.Equal(t, c.rows, n)
			continue
		}
		require.ErrorIs(t, err, ErrNoLengths)
		require.ErrorContains(t, err, fmt.Sprintf("how many of the %d tokens each query has", c.rows))
		require.ErrorContains(t, err, fmt.Sprintf("[1, %d, dim]", c.rows))
	}
	n, err := rows(nil, q(1, 300, 2))
	require.NoError(t, err)
	require.Equal(t, 300, n)
}
