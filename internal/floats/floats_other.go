//go:build !amd64 || purego

package floats

func decode([]float32, []byte) int           { return 0 }
func encode([]byte, []float32) (int, uint16) { return 0, 0 }

func squares(sum *[4]float64, x []float32) { squaresOf(sum, x) }
func scale(x []float32, by float64)        { scaleOf(x, by) }
