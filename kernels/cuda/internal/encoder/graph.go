package encoder

import (
	"github.com/plaid-ir/plaid/kernels/cuda/internal/driver"
	"github.com/plaid-ir/plaid/kernels/cuda/internal/runtime"
)

// graphKey is all that the launches of a small pass depend on: numbers of rows and spans,
// rounded up, so that there are few graphs.
type graphKey struct{ rows, spans int }

// smallRows is up to how many rows a pass is a small one.
const smallRows = 256

// Rows of a small pass are rounded up to graphRows, its spans to a power of two. There are
// at most smallRows/graphRows · (1 + log₂ smallRows) graphs.
const graphRows = 32

func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// once gives the device a pass of which all is known but what is in memory: as a graph,
// which is made of the second one of a kind, when the driver knows the kernels.
func (m *model) once(rt *runtime.Runtime, key graphKey, work func() error) error {
	if m.noGraph {
		return work()
	}
	g, seen := m.graphs[key]
	if !seen {
		m.graphs[key] = driver.Graph{}
		return work()
	}
	if g == (driver.Graph{}) {
		var err error
		if g, err = rt.Driver.Capture(rt.Stream, work); err != nil {
			m.noGraph = true
			return work() // what is really wrong is wrong here too
		}
		m.graphs[key] = g
	}
	return rt.Driver.LaunchGraph(g, rt.Stream)
}
