package flags

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/eval"
)

// What each kind of value takes, what it is then, and what it says of the rest.
func TestValues(t *testing.T) {
	for _, c := range []struct {
		value  pflag.Value
		kind   string
		def    string
		good   map[string]string // text, and how it is shown then
		bad    []string
		reason string
	}{
		{Int(new(int), 3, 1), "N", "3", map[string]string{"7": "7", "1": "1"}, []string{"0", "-4"}, "must be at least 1"},
		{Int(new(int), 3, 1), "N", "3", nil, []string{"", "x", "1.5", "99999999999999999999"}, "not a whole number"},
		{Ints(new([]int), 1, 10, 100), "LIST", "10,100", map[string]string{"5": "5", "3, 4": "3,4"}, []string{"3,0"}, "must be at least 1"},
		{Ints(new([]int), 0), "LIST", "", map[string]string{"0": "0"}, []string{"", "1,", "1,x"}, "not a whole number"},
		{Choice(new(string), "a", "a", "b"), "a|b", "a", map[string]string{"b": "b"}, []string{"", "c", "A"}, "must be a or b"},
		{Duration(new(time.Duration)), "TIME", "0s", map[string]string{"1500ms": "1.5s"}, []string{"", "5", "x"}, "want a time such as 500ms, 10s or 2m"},
		{Duration(new(time.Duration)), "TIME", "0s", nil, []string{"-1s"}, "a time cannot be negative"},
		{Size(new(int64), 1<<20), "SIZE", "1 MiB", map[string]string{"2k": "2 KiB"}, []string{"", "1XB"}, "want a size such as 512MiB, 1GB or 1073741824"},
		{Nbits(new(int)), "1|2|4|8", "2", map[string]string{"8": "8"}, []string{"3", "0", "", "02"}, "must be 1, 2, 4 or 8"},
		{Portion(new(float64), 0.99), "X", "0.99", map[string]string{"1": "1", "1e-3": "0.001"}, []string{"0", "1.01", "NaN", ""}, "want a number above 0 and at most 1"},
		{Enum(new(eval.Ties), eval.TiesTREC, eval.TiesRank), "trec|rank", "trec", map[string]string{"rank": "rank"}, []string{"x"}, "must be trec or rank"},
		{Measures(new([]eval.Measure)), "LIST", eval.DefaultMeasures, map[string]string{"MRR": "RR"}, []string{"foo"}, `measure "foo"`},
	} {
		require.Equal(t, c.kind, c.value.Type())
		require.Equal(t, c.def, c.value.String(), c.kind)
		for _, text := range c.bad {
			require.ErrorContains(t, c.value.Set(text), c.reason, "%s %q", c.kind, text)
			require.Equal(t, c.def, c.value.String(), "what is refused changes nothing")
		}
		for text, shown := range c.good {
			require.NoError(t, c.value.Set(text), "%s %q", c.kind, text)
			require.Equal(t, shown, c.value.String())
		}
	}
}

func TestOnce(t *testing.T) {
	var n int
	v := Once(Int(&n, 0, 0))
	require.NoError(t, v.Set("1"))
	require.EqualError(t, v.Set("1"), "the flag is set twice")
	require.Equal(t, 1, n)
}
