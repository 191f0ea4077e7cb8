//go:build linux && (amd64 || arm64)

package reliability

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"

	"github.com/plaid-ir/plaid/internal/testing/faults"
)

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
			kind := strings.ToUpper(sig.String())
			points = append(points, point{kind, fmt.Sprintf("%v at call %s", sig, shown(s, c)), func(dir string) error {
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
