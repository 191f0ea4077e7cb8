//go:build linux && (amd64 || arm64)

package reliability

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"

	"github.com/plaid-ir/plaid/internal/testing/faults"
)

const (
	sectorBytes = 512
	pageBytes   = 4096
)

// killPoints: before and after each call, and in the middle of each write. The
// kernel stops a write at the border of a page when a process is killed;
// borders of sectors are looked at too.
func killPoints(rng *rand.Rand, s *scenario) []point {
	var points []point
	add := func(kind string, c *faults.Call, act faults.Action, detail string) {
		points = append(points, point{kind, fmt.Sprintf("killed %s%s call %s", kind, detail, shown(s, c)), func(dir string) error {
			return s.kill(dir, c.N, act)
		}})
	}
	for i := range s.calls {
		c := &s.calls[i]
		if c.Op == faults.Print || c.Op == faults.Open || c.Op == faults.Map || c.Op == faults.Lock || c.Op == faults.Unlock {
			continue
		}
		add("before", c, faults.KillBefore(), "")
		add("after", c, faults.KillAfter(), "")
		if c.Op != faults.Write {
			continue
		}
		for _, n := range tears(rng, c.Size) {
			add("within", c, faults.Tear(n), fmt.Sprintf(" (%d bytes)", n))
		}
	}
	return points
}

// tears are some lengths that a write of so many bytes may be cut to.
func tears(rng *rand.Rand, size int64) []int {
	var all []int
	add := func(n int64) {
		if n > 0 && n < size && !slices.Contains(all, int(n)) {
			all = append(all, int(n))
		}
	}
	add(sectorBytes)
	add((size - 1) / sectorBytes * sectorBytes)
	for _, unit := range []int64{sectorBytes, pageBytes, pageBytes} {
		if size > unit {
			add((1 + rng.Int64N((size-1)/unit)) * unit)
		}
	}
	return all
}

func (s *scenario) kill(dir string, n int, act faults.Action) error {
	if err := s.begin(dir); err != nil {
		return err
	}
	res, err := s.run(dir, false, false, func(c *faults.Call) faults.Action {
		if c.N == n {
			return act
		}
		return faults.Pass()
	})
	if err != nil {
		return err
	}
	done := s.acknowledged(res.printed)
	if res.code > 0 {
		return fmt.Errorf("exit status %d before it was killed: %s", res.code, res.errors)
	}
	if res.code == 0 {
		done = len(s.states) - 1
	}
	return s.examine(dir, done)
}

// exitInterrupted is the exit status of a command that a signal stopped.
const exitInterrupted = 130

// signalPoints: a signal at each call. Where the process is between two calls
// does not show in the files.
func signalPoints(_ *rand.Rand, s *scenario) []point {
	if s.job != nil { // it is not of this program
		return nil
	}
	var points []point
	for i := range s.calls {
		c := &s.calls[i]
		if c.Op == faults.Print {
			continue
		}
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			points = append(points, point{sig.String(), fmt.Sprintf("%v at call %s", sig, shown(s, c)), func(dir string) error {
				return s.interrupt(dir, c.N, sig)
			}})
		}
	}
	return points
}

func (s *scenario) interrupt(dir string, n int, sig syscall.Signal) error {
	if err := s.begin(dir); err != nil {
		return err
	}
	res, err := s.run(dir, false, false, func(c *faults.Call) faults.Action {
		if c.N == n {
			return faults.Signal(sig)
		}
		return faults.Pass()
	})
	if err != nil {
		return err
	}
	allowed := s.states[:1]
	switch res.code {
	case 0:
		allowed = s.states[1:]
	case exitInterrupted:
	default:
		return fmt.Errorf("exit status %d: %s", res.code, res.errors)
	}
	if err := s.tidy(dir, res); err != nil {
		return err
	}
	if err := s.examineFor(dir, res.code == 0, res.code != 0, allowed...); err != nil {
		return fmt.Errorf("exit status %d, %q: %w", res.code, strings.TrimSpace(res.errors), err)
	}
	return nil
}
