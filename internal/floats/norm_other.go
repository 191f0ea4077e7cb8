//go:build !amd64 || purego

package floats

func squares(sum *[4]float64, x []float32) { squaresOf(sum, x) }
func scale(x []float32, by float64)        { scaleOf(x, by) }
