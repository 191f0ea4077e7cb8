package encoder

import (
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// hopper is the architecture whose device code has the wide tiles encoder_gemm_*.
const hopper = "90a"

// productKernel is a kernel that multiplies rows with a weight, and its launch configuration.
type productKernel struct {
	name          string
	gx, gy        int
	block, shared int
	stages        uint32
}

// maxStages is the maximum of stages of small tiles, by their rows.
var maxStages = map[int]int{16: 48, 32: 24}

const (
	largeShared  = 73728 // encoder_tile_*_m128
	largeStages  = 3
	otherThreads = 128
)

// wideTile is the launch configuration of encoder_gemm_*_nN: threads and shared memory of a block,
// and how many blocks a multiprocessor runs at the same time.
type wideTile struct{ threads, shared, blocks int }

// wideTiles has the configurations by N.
var wideTiles = map[int]wideTile{
	64:  {384, 213120, 1},
	128: {288, 114736, 2},
	192: {384, 221264, 1},
	256: {384, 229440, 1},
}

// wideColumns are the N that kernels exist for, by epilogue.
var wideColumns = map[string][]int{
	"bias": {64, 128, 192, 256}, "gelu": {64, 128, 192, 256}, "rotary": {64, 192, 256},
	"geglu": {128, 256}, "swiglu": {128, 256}, "silu": {},
}

// Limits up to which another kernel is faster, measured on an H200.
const (
	fewRows    = 64   // rows up to which small tiles are faster
	narrowRows = 128  // the same for products with a dimension of at most narrow
	narrow     = 384  // columns of the result, or values of a row
	longRow    = 1536 // values of a row above which tiles of 192 columns are tried first
	someRows   = 1024 // rows up to which wide tiles of 64 columns are faster
	tileRows   = 512  // rows up to which small tiles are faster than those of 128 rows
	followRows = 1024 // rows up to which kernels are launched early, which costs nothing then
)

// chooseKernel picks the kernel of an epilogue for a product of rows of k values with n columns. All
// kernels compute the same bits, so that the choice affects speed only.
func chooseKernel(props deviceLimits, epilogue string, rows, n, k int) productKernel {
	columns := 0
	few := rows <= fewRows || rows <= narrowRows && min(n, k) <= narrow
	if props.arch == hopper && !few {
		columns = wideTileColumns(epilogue, rows, n, k)
	}
	if columns == 0 {
		return chooseTile(props, "encoder/encoder_tile_"+epilogue, rows, n, k, 32)
	}
	tiles, w := n/columns*runtime.CeilDiv(rows, 128), wideTiles[columns]
	return productKernel{
		name:   fmt.Sprintf("encoder/encoder_gemm_%s_n%d", epilogue, columns),
		gx:     min(w.blocks*props.multiprocessors, tiles),
		gy:     1,
		block:  w.threads,
		shared: w.shared,
	}
}

// wideTileColumns returns N of the wide tiles for a product, 0 if no N of the epilogue divides n.
func wideTileColumns(epilogue string, rows, n, k int) int {
	order := []int{256, 128, 192, 64}
	switch {
	case epilogue == "geglu" || epilogue == "swiglu":
	case rows <= someRows:
		order = []int{64}
	case n <= 1536 || k > longRow:
		order = []int{192, 256, 128, 64}
	}
	for _, columns := range order {
		if n%columns == 0 && slices.Contains(wideColumns[epilogue], columns) {
			return columns
		}
	}
	return 0
}

// chooseTile picks among the tiles that all devices have. small is the number of rows and of columns
// of the tile for few rows.
func chooseTile(props deviceLimits, name string, rows, n, k, small int) productKernel {
	if rows <= tileRows {
		stage := 2 * small * tile * 2 // rows and weights, 64 values of each
		stages := min(k/tile, maxStages[small], props.shared/stage)
		return productKernel{
			name:   fmt.Sprintf("%s_m%d", name, small),
			gx:     n / small,
			gy:     runtime.CeilDiv(rows, small),
			block:  otherThreads,
			shared: stages * stage,
			stages: uint32(stages),
		}
	}
	return productKernel{
		name:   name + "_m128",
		gx:     n / 64,
		gy:     runtime.CeilDiv(rows, 128),
		block:  otherThreads,
		shared: largeShared,
		stages: largeStages,
	}
}

// deviceLimits are the properties of a device that the choice of kernels depends on.
type deviceLimits struct {
	arch                    string
	shared, multiprocessors int
}

// limitsFor returns the limits of a device.
func limitsFor(rt *runtime.Runtime) deviceLimits {
	return deviceLimits{rt.Arch(), rt.Props.Shared, rt.Props.Multiprocessors}
}
