//go:build linux && (amd64 || arm64)

package reliability

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
)

// point is one thing that goes wrong.
type point struct {
	kind string // to be counted by
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
			wanted := effort.Cases(s.short/16, s.short)
			if effort.Brief() {
				wanted /= 2
			}
			if *full {
				wanted = s.least
			}
			if *cases > 0 {
				wanted = *cases
			}
			begin, done, kinds := time.Now(), 0, map[string]int{}
			for round := 0; ; round++ {
				done += runRound(t, worlds.scenarios(t, round), s.points, wanted, round, kinds)
				// Whole rounds, where all points are wanted.
				if !*full || done >= wanted {
					break
				}
			}
			t.Logf("series %s, seed %d: %d points %v, %.0f s", s.name, *seed, done, kinds, time.Since(begin).Seconds())
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

// runRound runs the points of all scenarios, or without -full an equal share of each so that
// there are so many. It returns how many it ran, and counts them by kind.
func runRound(
	t *testing.T, all []*scenario, points func(*rand.Rand, *scenario) []point, wanted, round int, kinds map[string]int,
) (done int) {
	for i, s := range all {
		t.Run(strings.ReplaceAll(s.name, " ", "-"), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(*seed, uint64(round*100+i)))
			ps := points(rng, s)
			if !*full {
				rng.Shuffle(len(ps), func(i, j int) { ps[i], ps[j] = ps[j], ps[i] })
				ps = ps[:min(len(ps), (wanted+len(all)-1)/len(all))]
			}
			s.runPoints(t, ps, round)
			for _, p := range ps {
				kinds[p.kind]++
			}
			done += len(ps)
		})
	}
	return done
}

// runPoints runs points, as many at a time as there are processors.
func (s *scenario) runPoints(t *testing.T, ps []point, round int) {
	todo := make(chan point)
	var wg sync.WaitGroup
	var failed atomic.Int64
	for n := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			dir := filepath.Join(s.w.dir, fmt.Sprint("case", n))
			for p := range todo {
				if err := p.run(dir); err != nil && failed.Add(1) <= 10 {
					t.Errorf("round %d, %s, %s: %v", round, s.name, p.what, err)
				}
			}
		})
	}
	for _, p := range ps {
		todo <- p
	}
	close(todo)
	wg.Wait()
	if n := failed.Load(); n > 10 {
		t.Errorf("%d more failed", n-10)
	}
}
