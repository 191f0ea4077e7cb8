//go:build amd64 && !purego

package floats

import "golang.org/x/sys/cpu"

func squares(sum *[4]float64, x []float32) {
	if cpu.X86.HasAVX {
		squaresAVX(sum, x)
		return
	}
	squaresOf(sum, x)
}

func scale(x []float32, by float64) {
	if cpu.X86.HasAVX {
		scaleAVX(x, by)
		return
	}
	scaleOf(x, by)
}

//go:noescape
func squaresAVX(sum *[4]float64, x []float32)

//go:noescape
func scaleAVX(x []float32, by float64)
