package codec

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/realdata"
	"github.com/plaid-ir/plaid/kernels"
)

func TestMain(m *testing.M) {
	effort.Rapid(20, 100)
	os.Exit(m.Run())
}

// bruteForce is Backend.Nearest by definition, in float32, without allocations.
type bruteForce struct{ kernels.Backend }

func (bruteForce) Nearest(_ context.Context, codes []uint32, scores []float32, centroids, x []float32, dim int) error {
	for i := range len(x) / dim {
		row := x[i*dim : (i+1)*dim]
		best, at := float32(math.Inf(-1)), 0
		for c := range len(centroids) / dim {
			cent := centroids[c*dim : (c+1)*dim][:len(row)]
			var s0, s1 float32
			for j := 0; j+1 < len(row); j += 2 {
				s0 += row[j] * cent[j]
				s1 += row[j+1] * cent[j+1]
			}
			if dim%2 == 1 {
				s0 += row[dim-1] * cent[dim-1]
			}
			if s := s0 + s1; s > best {
				best, at = s, c
			}
		}
		codes[i] = uint32(at)
		if scores != nil {
			scores[i] = best
		}
	}
	return nil
}

// backend is the best one registered.
func backend(t testing.TB) kernels.Backend {
	be, err := kernels.Select("")
	require.NoError(t, err)
	return be
}

// clustered draws n unit vectors around a few random directions.
func clustered(n, dim, clusters int, spread float64, seed uint64) []float32 {
	r := rng(seed)
	normal := func() float64 { // Box and Muller
		u := (float64(r.next()>>11) + 0.5) / (1 << 53)
		v := float64(r.next()>>11) / (1 << 53)
		return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
	}
	centers := make([]float32, clusters*dim)
	for i := range centers {
		centers[i] = float32(normal())
	}
	Normalize(centers, dim)
	x := make([]float32, n*dim)
	for i := range n {
		c := i % clusters
		for j := range dim {
			x[i*dim+j] = centers[c*dim+j] + float32(spread*normal()/math.Sqrt(float64(dim)))
		}
	}
	Normalize(x, dim)
	return x
}

// readNPY reads rows lo to hi of a .npy file as float32 (rows of a vector: its
// entries), and skips the test where the file is not there.
func readNPY(t testing.TB, lo, hi int, elem ...string) (values []float32, cols int) {
	t.Helper()
	path := realdata.Path(t, append([]string{"data"}, elem...)...)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var pre [10]byte
	_, err = f.ReadAt(pre[:], 0)
	require.NoError(t, err)
	header := make([]byte, binary.LittleEndian.Uint16(pre[8:]))
	_, err = f.ReadAt(header, 10)
	require.NoError(t, err)
	m := regexp.MustCompile(`'descr': '(..\d)'.*'shape': \(([^)]*)\)`).FindSubmatch(header)
	require.NotNil(t, m, "header %q", header)
	shape := strings.FieldsFunc(string(m[2]), func(r rune) bool { return r == ',' || r == ' ' })
	rows, err := strconv.Atoi(shape[0])
	require.NoError(t, err)
	cols = 1
	if len(shape) > 1 {
		cols, err = strconv.Atoi(shape[1])
		require.NoError(t, err)
	}
	hi = min(hi, rows)
	size := int(m[1][2] - '0')
	data := make([]byte, (hi-lo)*cols*size)
	_, err = f.ReadAt(data, int64(10+len(header)+lo*cols*size))
	require.NoError(t, err)
	values = make([]float32, (hi-lo)*cols)
	for i := range values {
		switch p := data[i*size:]; string(bytes.Trim(m[1], "<|")) {
		case "f2":
			values[i] = kernels.F16ToF32(binary.LittleEndian.Uint16(p))
		case "f4":
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(p))
		case "i4":
			values[i] = float32(int32(binary.LittleEndian.Uint32(p)))
		case "u1":
			values[i] = float32(p[0])
		default:
			t.Fatalf("%s: type %s", path, m[1])
		}
	}
	return values, cols
}
