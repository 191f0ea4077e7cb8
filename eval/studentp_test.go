package eval

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Critical values as tables of Student's t print them: two-sided level, degrees of
// freedom, t to three decimals.
func TestStudentTable(t *testing.T) {
	for _, tt := range []struct {
		level, df, t float64
	}{
		{0.05, 1, 12.706}, {0.05, 2, 4.303}, {0.05, 4, 2.776}, {0.05, 9, 2.262}, {0.05, 29, 2.045}, {0.05, 120, 1.980},
		{0.01, 1, 63.657}, {0.01, 9, 3.250}, {0.01, 30, 2.750},
		{0.10, 5, 2.015}, {0.10, 20, 1.725}, {0.001, 10, 4.587},
	} {
		// The level lies between those of t half a unit of the last place away.
		require.Less(t, studentTwoSided(tt.t+0.0005, tt.df), tt.level, "%v", tt)
		require.Greater(t, studentTwoSided(tt.t-0.0005, tt.df), tt.level, "%v", tt)
	}
}

// 2*scipy.stats.t.sf(abs(t), df) of SciPy 1.17.1.
func TestStudentAgainstSciPy(t *testing.T) {
	for _, tt := range []struct {
		t, df, want float64
	}{
		{1, 1, 0.5000000000000001},
		{3, 2, 0.09546596626670913},
		{0.1, 3, 0.9266523488008059},
		{2.776, 4, 0.05002277831997642},
		{-2.262, 9, 0.05001284550245463},
		{1.96, 9999, 0.0500235230052102},
		{5.5, 299, 8.158822099858345e-08},
		{40, 50, 1.2412423784372691e-39},
		{1e-06, 7, 0.9999992300170983},
		{1e8, 2, 1e-16},
		{3, 100000, 0.0027004608840647234},
		{2.5, 999999, 0.012419489502322098},
	} {
		require.InEpsilon(t, tt.want, studentTwoSided(tt.t, tt.df), 1e-9, "%v", tt)
	}
	require.Equal(t, 1.0, studentTwoSided(0, 5))
	require.Equal(t, 0.0, studentTwoSided(math.Inf(-1), 5))
	require.Equal(t, 0.0, studentTwoSided(1e200, 3)) // t² is beyond float64
}

// scipy.special.betainc(a, b, x) of SciPy 1.17.1.
func TestRegularisedBetaAgainstSciPy(t *testing.T) {
	for _, tt := range []struct {
		a, b, x, want float64
	}{
		{0.5, 0.5, 0.25, 0.33333333333333337},
		{2, 3, 0.4, 0.5247999999999999},
		{5000, 0.5, 0.999, 0.0015615791602892836},
		{150, 0.5, 0.9, 1.9377263808363785e-08},
		{4.5, 0.5, 0.6, 0.036787497879786156},
		{1, 0.5, 0.3, 0.16333997346592444},
	} {
		require.InEpsilon(t, tt.want, regularisedBeta(tt.a, tt.b, tt.x, 1-tt.x), 1e-11, "%v", tt)
		require.InDelta(t, 1-tt.want, regularisedBeta(tt.b, tt.a, 1-tt.x, tt.x), 1e-11, "%v", tt)
	}
	require.Equal(t, 0.0, regularisedBeta(2, 3, 0, 1))
	require.Equal(t, 1.0, regularisedBeta(2, 3, 1, 0))
}

// With 1 and 2 degrees of freedom the distribution has a closed form.
func TestStudentClosedForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(0, 1000).Draw(t, "t")
		require.InDelta(t, 2/math.Pi*math.Atan2(1, v), studentTwoSided(v, 1), 1e-13)
		require.InDelta(t, 1-v/math.Sqrt(2+v*v), studentTwoSided(v, 2), 1e-13)
	})
}

func TestStudentFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		df := float64(rapid.IntRange(1, 20000).Draw(t, "df"))
		x, y := rapid.Float64Range(0, 50).Draw(t, "x"), rapid.Float64Range(0, 50).Draw(t, "y")
		px, py := studentTwoSided(min(x, y), df), studentTwoSided(max(x, y), df)
		if !(py >= 0 && px <= 1 && py <= px+1e-12) {
			t.Fatalf("P is %v at %v and %v at %v", px, min(x, y), py, max(x, y))
		}
	})
}
