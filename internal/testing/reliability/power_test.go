//go:build linux && (amd64 || arm64)

package reliability

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/faults"
)

// sampledCalls is the number of calls of a run, about, that the short form has the power go
// after: what the folders would be is hashed for every call that is looked at.
const sampledCalls = 4

// powerPoints: the power goes after each call of a recorded run. Folders that
// were found once are not looked at again.
func powerPoints(rng *rand.Rand, s *scenario) []point {
	draw := rng.Uint64()
	var points []point
	seen := map[[sha256.Size]byte]bool{}
	d := s.disk(0)
	done := 0
	for i := range s.calls {
		c := &s.calls[i]
		if c.Op == faults.Print {
			done = min(done+s.acknowledged(c.Data), len(s.states)-1)
		} else {
			d.happened(c)
		}
		if c.Op == faults.Open || c.Op == faults.Lock || c.Op == faults.Unlock || c.Op == faults.Map || c.Op == faults.Chmod {
			continue
		}
		if !*full && !effort.Long() && *cases == 0 && rng.IntN(len(s.calls)) >= sampledCalls {
			continue
		}
		acked := done
		for _, renames := range some(rng, len(d.renames)) {
			for j, p := range plans {
				rng := func() *rand.Rand { return rand.New(rand.NewPCG(draw, uint64(i*1000+renames*100+j))) }
				key := d.image(rng(), renames, p).key(acked)
				if seen[key] {
					continue
				}
				seen[key] = true
				what := fmt.Sprintf("power gone after call %s, %d changes acknowledged, %d of %d names, plan %d",
					shown(s, c), acked, renames, len(d.renames), j)
				points = append(points, point{"states", what, func(dir string) error {
					if err := s.disk(i+1).image(rng(), renames, p).write(dir); err != nil {
						return err
					}
					return s.examine(dir, acked)
				}})
			}
		}
	}
	return points
}

// some numbers up to n: none, all, all but one, and one by chance.
func some(rng *rand.Rand, n int) []int {
	all := []int{0, n, max(n-1, 0), rng.IntN(n + 1)}
	slices.Sort(all)
	return slices.Compact(all)
}

// disk is what has become of it when so many calls have happened.
func (s *scenario) disk(calls int) *disk {
	files, err := s.files()
	if err != nil {
		panic(err)
	}
	d := newDisk(s.w.path("rehearsal"), files)
	for i := range s.calls[:calls] {
		d.happened(&s.calls[i])
	}
	return d
}

// plans decide about the writes that were not synced. Those that matter most
// are sure to be there: nothing, all, all but one, one alone; others are drawn.
var plans = []plan{
	func(*rand.Rand, int, int) fate { return lost },
	allKept,
	func(_ *rand.Rand, n, of int) fate { return pick(n == of-1, kept, lost) },
	func(_ *rand.Rand, n, of int) fate { return pick(n == of-1, lost, kept) },
	func(_ *rand.Rand, n, of int) fate { return pick(n == of-1, torn, kept) },
	func(_ *rand.Rand, n, _ int) fate { return pick(n == 0, kept, lost) },
	drawn(lost, kept), drawn(lost, kept),
	drawn(lost, kept, torn), drawn(lost, kept, torn),
	drawn(torn),
}

func drawn(fates ...fate) plan {
	return func(rng *rand.Rand, _, _ int) fate { return fates[rng.IntN(len(fates))] }
}

func pick(yes bool, a, b fate) fate {
	if yes {
		return a
	}
	return b
}
