//go:build linux && (amd64 || arm64)

package reliability

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
)

// point is one thing that goes wrong.
type point struct {
	kind string // column of the table
	what string // to find it again
	run  func(dir string) error
}

// TestSeries goes through the series; each is a test, and each scenario one of
// it, so that parts can be run alone.
func TestSeries(t *testing.T) {
	needFaults(t)
	series := []struct {
		name         string
		short, least int // points: in the long form of tests, and with -full
		points       func(*rand.Rand, *scenario) []point
	}{
		{"kill", 240, 10_000, killPoints},
		{"fail", 240, 10_000, failPoints},
		{"power", 240, 10_000, powerPoints},
		{"signal", 60, 1_000, signalPoints},
	}
	worlds := &worlds{dir: testenv.RAMDir(t)}
	for _, s := range series {
		t.Run(s.name, func(t *testing.T) {
			wanted := effort.Cases(s.short/8, s.short)
			if effort.Brief() {
				wanted /= 2
			}
			if *full {
				wanted = s.least
			}
			if *cases > 0 {
				wanted = *cases
			}
			begin := time.Now()
			table := &table{}
			for round := 0; ; round++ {
				table.round(t, worlds.scenarios(t, round), s.points, wanted, round)
				// Whole rounds, where all points are wanted.
				if !*full || table.total() >= wanted {
					break
				}
			}
			t.Logf("series %s, seed %d, %.0f s\n%s", s.name, *seed, time.Since(begin).Seconds(), table)
		})
	}
}

// worlds are made when they are first asked for.
type worlds struct {
	dir string
	all [][]*scenario
}

func (w *worlds) scenarios(t *testing.T, round int) []*scenario {
	for len(w.all) <= round {
		w.all = append(w.all, makeWorld(t, w.dir, len(w.all)).scenarios(t))
	}
	return w.all[round]
}

// round runs the points of all scenarios, or without -full an equal share of
// each so that there are so many.
func (tb *table) round(t *testing.T, all []*scenario, points func(*rand.Rand, *scenario) []point, wanted, round int) {
	for i, s := range all {
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(*seed, uint64(round*100+i)))
			ps := points(rng, s)
			if !*full {
				rng.Shuffle(len(ps), func(i, j int) { ps[i], ps[j] = ps[j], ps[i] })
				ps = ps[:min(len(ps), (wanted+len(all)-1)/len(all))]
			}
			tb.run(t, s, ps, round)
		})
	}
}

// run runs points, as many at a time as there are processors.
func (tb *table) run(t *testing.T, s *scenario, ps []point, round int) {
	todo := make(chan point)
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed := 0
	for n := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			dir := filepath.Join(s.w.dir, fmt.Sprint("case", n))
			for p := range todo {
				err := p.run(dir)
				mu.Lock()
				tb.add(s.name, p.kind, err != nil)
				if err != nil {
					if failed++; failed <= 10 {
						t.Errorf("round %d, %s, %s: %v", round, s.name, p.what, err)
					}
				}
				mu.Unlock()
			}
		})
	}
	for _, p := range ps {
		todo <- p
	}
	close(todo)
	wg.Wait()
	if failed > 10 {
		t.Errorf("%d more failed", failed-10)
	}
}

// table counts cases and failures.
type table struct {
	rows, columns []string
	cells         map[[2]string][2]int
}

func (tb *table) add(row, column string, failed bool) {
	if tb.cells == nil {
		tb.cells = map[[2]string][2]int{}
	}
	if !slices.Contains(tb.rows, row) {
		tb.rows = append(tb.rows, row)
	}
	if !slices.Contains(tb.columns, column) {
		tb.columns = append(tb.columns, column)
		slices.Sort(tb.columns)
	}
	c := tb.cells[[2]string{row, column}]
	c[0]++
	if failed {
		c[1]++
	}
	tb.cells[[2]string{row, column}] = c
}

func (tb *table) total() int {
	n := 0
	for _, c := range tb.cells {
		n += c[0]
	}
	return n
}

func (tb *table) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	cell := func(c [2]int) {
		if c[1] > 0 {
			fmt.Fprintf(w, "\t%d (%d failed)", c[0], c[1])
		} else {
			fmt.Fprintf(w, "\t%d", c[0])
		}
	}
	fmt.Fprintf(w, "%s\t%s\tall\t\n", "", strings.Join(tb.columns, "\t"))
	all := map[string][2]int{}
	for _, r := range append(slices.Clone(tb.rows), "all") {
		fmt.Fprint(w, r)
		sum := [2]int{}
		for _, c := range tb.columns {
			n := tb.cells[[2]string{r, c}]
			if r == "all" {
				n = all[c]
			}
			all[c] = [2]int{all[c][0] + n[0], all[c][1] + n[1]}
			sum = [2]int{sum[0] + n[0], sum[1] + n[1]}
			cell(n)
		}
		cell(sum)
		fmt.Fprint(w, "\t\n")
	}
	_ = w.Flush()
	return b.String()
}
