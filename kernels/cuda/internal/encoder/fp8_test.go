package encoder

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/eval/beir"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime/runtimetest"
	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

// e4m3 rounds to the nearest number of four bits of exponent and three of mantissa, ties to
// even; the largest is 448, the least above zero 2⁻⁹.
func e4m3(v float32) float32 {
	if v > -0x1p-6 && v < 0x1p-6 {
		return float32(math.RoundToEven(float64(v)*512) / 512)
	}
	b := math.Float32bits(v)
	b += 0x7ffff + b>>20&1
	return max(min(math.Float32frombits(b&^0xfffff), 448), -448)
}

// inE4M3 rounds a row with a scale of its own, by which its largest value is 448.
func inE4M3(row []float32) {
	most := float32(0)
	for _, v := range row {
		most = max(most, float32(math.Abs(float64(v))))
	}
	if most == 0 {
		return
	}
	scale := most / 448
	for i, v := range row {
		row[i] = e4m3(v/scale) * scale
	}
}

func TestE4M3(t *testing.T) {
	for v, want := range map[float32]float32{
		0: 0, 1: 1, 1.06: 1, 1.0625: 1, 1.1875: 1.25, -1.07: -1.125, 448: 448, 440: 448, 500: 448, 0.001953125: 0.001953125, 0.0009: 0, 0.0011: 0.001953125, 0.0175: 0.017578125,
	} {
		require.Equal(t, want, e4m3(v), v)
	}
	row := []float32{-2, 1, 0, .1}
	inE4M3(row)
	require.Equal(t, []float32{-2, 1, 0}, row[:3])
	require.InDelta(t, .1, row[3], .1/16)
}

// TestFP8Study says what e4m3 would do to vectors: weights with a scale a row and activations
// with one a token, in the products of layers; the rest as it is on a device. PLAID_FP8 is the
// folder of a model, PLAID_FP8_TEXTS that of a collection, PLAID_FP8_FIRST how many of its texts
// are compared with float32. Where that is 0 the collection is searched and judged instead.
func TestFP8Study(t *testing.T) {
	dir, texts := os.Getenv("PLAID_FP8"), os.Getenv("PLAID_FP8_TEXTS")
	if dir == "" || texts == "" {
		t.Skip("needs PLAID_FP8 and PLAID_FP8_TEXTS")
	}
	first, err := strconv.Atoi(os.Getenv("PLAID_FP8_FIRST"))
	require.NoError(t, err)
	var docs []encode.Text
	for text, err := range encode.JSONL(t.Context(), filepath.Join(texts, "corpus.jsonl")) {
		require.NoError(t, err)
		docs = append(docs, text)
	}
	exact, err := encode.Open(dir, nil)
	require.NoError(t, err)
	defer exact.Close()
	e, err := encode.Open(dir, &encode.Options{On: encoding{dev: runtimetest.OpenFakeHopper(t, runtimetest.Fake(fakeKernelsRounding(inE4M3)))}})
	require.NoError(t, err)
	defer e.Close()
	if first == 0 {
		t.Logf("nDCG@10 %.4f", judged(t, e, texts, docs))
		return
	}
	want, got := vectorsOf(t, exact, docs[:first], nil), vectorsOf(t, e, docs[:first], nil)
	var cosines []float64
	mean := 0.0
	for i := range want {
		for j := 0; j < len(want[i]); j += e.Dim() {
			s := 0.0
			for k := range e.Dim() {
				s += float64(want[i][j+k]) * float64(got[i][j+k])
			}
			cosines, mean = append(cosines, s), mean+s
		}
	}
	slices.Sort(cosines)
	t.Logf("%d vectors: cosine mean %.6f, .1 %% quantile %.6f, least %.6f", len(cosines), mean/float64(len(cosines)), cosines[len(cosines)/1000], cosines[0])
}

// judged is nDCG@10 of a collection at 8 bits a component, searched exhaustively.
func judged(t *testing.T, e *encode.Encoder, dir string, docs []encode.Text) float64 {
	ctx := context.Background()
	each := func(yield func(encode.Text, error) bool) {
		for _, text := range docs {
			if text.Payload = nil; !yield(text, nil) {
				return
			}
		}
	}
	r, err := beir.Run(ctx, dir, beir.Vectors{
		Docs: func(ctx context.Context, use func(vectors.Source) error) error {
			s, _, err := encode.Spool(ctx, e, each, "", nil)
			require.NoError(t, err)
			defer s.Close()
			return use(s)
		},
		Queries: func(ctx context.Context, wanted func(string) bool, use func(vectors.Source) error) error {
			var queries []vectors.Document
			for q, err := range encode.JSONL(ctx, filepath.Join(dir, "queries.jsonl")) {
				require.NoError(t, err)
				if wanted(q.ID) {
					v, err := e.Query(ctx, q.Text)
					require.NoError(t, err)
					queries = append(queries, vectors.Document{ID: q.ID, Tokens: v.Vectors})
				}
			}
			src, err := vectors.FromDocuments(e.Dim(), queries)
			require.NoError(t, err)
			return use(src)
		},
	}, beir.Options{Build: index.BuildOptions{Nbits: 8}, Search: search.Options{Mode: search.Exhaustive}})
	require.NoError(t, err)
	return r.Result.Means[0]
}
