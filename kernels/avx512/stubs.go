//go:build amd64 && !purego

package avx512

//go:noescape
func Accumulate(acc [][8]uint64, tables [][256][8]uint64, vectors []byte, stride int)

//go:noescape
func Compose(table *[256][8]uint64, lo, hi *[16][8]uint64, order *[256]byte)

//go:noescape
func MaxFast(best [][32]int32, ranges [][2]uint32, tables [][256][8]uint64, scores [][8]uint64, codes []byte, codeBytes int, residuals, factors []byte, scales []uint32)

//go:noescape
func MaxFine(best [][16]float32, ranges [][2]uint32, tables [][256][8]uint64, scores []float32, codes []byte, codeBytes int, residuals, factors []byte, scales []float32, stride, n int, mid, unit *[16]float32)

//go:noescape
func MaxBytes2(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte)

//go:noescape
func MaxBytes4(best [][4]uint64, ranges [][2]uint32, rows [][4]uint64, codes []byte)

//go:noescape
func Dots(dst []float32, stride int, rows []float32, m, dim int, queries []float32, n int, lo, hi *[32]float32)

//go:noescape
func WidenBF16(dst []float32, src []byte)

//go:noescape
func WidenF16(dst []float32, src []byte)

//go:noescape
func Bytes(dst [][4]uint64, scores []float32, stride, n int, mul, add *[32]float32)

//go:noescape
func Words(dst [][8]uint64, scores []float32, stride, n int, mul, low *[32]float32, bias float32, scales []float32)

//go:noescape
func Filter(hits [][18]int32, levels []byte, stride int, x *byte, first int, best, margin *[64]int32, k int) (size int)

//go:noescape
func Range(lo, hi, rows []float32)

//go:noescape
func Levels(dst []byte, stride int, rows, lo, step, inverse []float32, most *[4]float32)

//go:noescape
func Pack(dst *byte, x, step []float32) (unit, err, norm float32)
