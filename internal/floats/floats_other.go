//go:build !amd64 || purego

package floats

// decodeBlocks and encodeBlocks leave all values to the portable loops.
func decodeBlocks([]float32, []byte) int           { return 0 }
func encodeBlocks([]byte, []float32) (int, uint16) { return 0, 0 }

func sumSquares(sum *[4]float64, x []float32) { sumSquaresPortable(sum, x) }
func scaleBlocks(x []float32, by float64)     { scalePortable(x, by) }
