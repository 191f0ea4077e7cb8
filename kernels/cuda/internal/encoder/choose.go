package encoder

import (
	"fmt"
	"slices"

	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// hopper is the architecture that has wide tiles of its own.
const hopper = "90a"

// productKernel is a kernel for products of rows with a weight, and how it is launched.
type productKernel struct {
	name          string
	gx, gy        int
	block, shared int
	stages        uint32
}

// maxStages is of small tiles of so many rows.
var maxStages = map[int]int{16: 48, 32: 24}

const (
	largeShared  = 73728 // encoder_tile_*_m128
	largeStages  = 3
	otherThreads = 128
)

// wideTile is how encoder_gemm_*_nN is launched: threads and shared memory of a block, and
// blocks that a multiprocessor holds.
type wideTile struct{ threads, shared, blocks int }

var wideTiles = map[int]wideTile{64: {384, 213120, 1}, 128: {288, 114736, 2}, 192: {384, 221264, 1}, 256: {384, 229440, 1}}

// wideColumns are the N that there are for an epilogue.
var wideColumns = map[string][]int{
	"bias": {64, 128, 192, 256}, "gelu": {64, 128, 192, 256}, "rotary": {64, 192, 256},
	"geglu": {128, 256}, "swiglu": {128, 256}, "silu": {},
}

// Found by measuring on an H200: up to so many rows, or values of a row, another kernel is
// faster.
const (
	fewRows    = 64   // small tiles
	narrowRows = 128  // small tiles of products that have
	narrow     = 384  // so many columns, or values of a row
	longRow    = 1536 // tiles of 192 columns, from more values on
	someRows   = 1024 // narrow ones of the wide tiles
	tileRows   = 512  // small tiles, where there are no wide ones
	followRows = 1024 // what launches a kernel early is of use, and costs nothing
)

// chooseKernel picks the kernel of an epilogue for a number of rows. All kernels give the same bits, so
// that this decides about nothing but speed.
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

// wideTileColumns is N of the wide tiles for a product; 0: none divides n.
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

// chooseTile picks among the tiles that every device has; small is the rows, and columns,
// of one where there are few rows.
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

// deviceLimits are what a choice depends on of a device.
type deviceLimits struct {
	arch                    string
	shared, multiprocessors int
}

func limitsFor(rt *runtime.Runtime) deviceLimits {
	return deviceLimits{rt.Arch(), rt.Props.Shared, rt.Props.Multiprocessors}
}
