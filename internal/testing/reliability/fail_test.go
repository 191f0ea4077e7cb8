//go:build linux && (amd64 || arm64)

package reliability

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/plaid-ir/plaid/internal/testing/faults"
)

// failure is how calls fail: the n-th, or all from it on that are of its kind.
type failure struct {
	errno syscall.Errno
	lasts bool
}

func (f failure) String() string {
	s := "EIO"
	if f.errno == syscall.ENOSPC {
		s = "ENOSPC"
	}
	if f.lasts {
		s += " on"
	}
	return s
}

// hits tells whether a call is of the kind: a full disk lets one remove and
// sync files, a broken one nothing.
func (f failure) hits(c *faults.Call) bool {
	if f.errno == syscall.EIO {
		return c.Op != faults.Unlock // closing the file unlocks it, too
	}
	switch c.Op {
	case faults.Write, faults.Truncate, faults.Allocate, faults.Create, faults.Mkdir, faults.Rename, faults.Link:
		return true
	case faults.Sync: // delayed allocation and network file systems run out of room as late as here
		return !f.lasts
	}
	return false
}

// exitUnknown is the exit status of a command that does not know whether its
// change was made.
const exitUnknown = 7

// failPoints: each call fails once, and all from it on.
func failPoints(_ *rand.Rand, s *scenario) []point {
	var points []point
	for i := range s.lookCalls {
		c := &s.lookCalls[i]
		if c.Op == faults.Print {
			continue
		}
		for _, f := range []failure{{syscall.EIO, false}, {syscall.EIO, true}, {syscall.ENOSPC, false}, {syscall.ENOSPC, true}} {
			if !f.hits(c) {
				continue
			}
			points = append(points, point{f.String(), fmt.Sprintf("%v at call %s", f, shown(s, c)), func(dir string) error {
				return s.fail(dir, c.N, f)
			}})
		}
	}
	return points
}

func (s *scenario) fail(dir string, n int, f failure) error {
	if err := s.begin(dir); err != nil {
		return err
	}
	res, err := s.run(dir, true, false, func(c *faults.Call) faults.Action {
		if c.N == n || f.lasts && c.N > n && f.hits(c) {
			return faults.Fail(f.errno)
		}
		return faults.Pass()
	})
	if err != nil {
		return err
	}
	for _, bad := range []string{"panic", "goroutine ", "SIGBUS", "SIGSEGV"} {
		if strings.Contains(res.errors, bad) {
			return fmt.Errorf("exit status %d: %s", res.code, res.errors)
		}
	}
	cleans := !f.lasts || f.errno == syscall.ENOSPC // what could be removed is to be removed
	allowed, err := s.judge(res, f)
	if err != nil {
		return err
	}
	if cleans {
		if err := s.tidy(dir, res); err != nil {
			return err
		}
	}
	failed := res.code != 0 && res.code != exitUnknown
	if err := s.examineFor(dir, res.code == 0, failed, allowed...); err != nil {
		return fmt.Errorf("exit status %d, %q: %w", res.code, strings.TrimSpace(res.errors), err)
	}
	return nil
}

// judge compares what a process said with what may be, and gives the states
// that the index may be in.
func (s *scenario) judge(res *result, f failure) ([]*state, error) {
	if s.job != nil {
		return s.judgeHandle(res, f)
	}
	switch {
	case res.code == 0:
		return s.states[1:], nil
	case res.code == exitUnknown:
		return s.states, nil
	case res.code == 1 || res.code >= 3 && res.code <= 6:
		return s.states[:1], nil
	}
	return nil, fmt.Errorf("exit status %d: %s", res.code, res.errors)
}

// judgeHandle follows what the process saw through its handle.
func (s *scenario) judgeHandle(res *result, f failure) ([]*state, error) {
	lines, err := handleLines(res.printed)
	if err != nil {
		return nil, err
	}
	now := s.states[0]
	for i, l := range lines {
		if l.Step < 0 { // it could not open the index
			if i == 0 {
				return []*state{now}, nil
			}
			break
		}
		c := changes[l.Step]
		next := c.after(now, s.added[l.Step])
		got := &state{l.Docs, l.Defaults}
		fault := func(format string, args ...any) ([]*state, error) {
			return nil, fmt.Errorf("step %d, %s %v (%q): %s", l.Step, c.kind, c.ids, l.Error, fmt.Sprintf(format, args...))
		}
		if l.Unknown && !l.Reopened {
			if !f.lasts {
				return fault("%s", l.Fault)
			}
			return []*state{now, next}, nil
		}
		if l.Fault != "" {
			return fault("the handle shows: %s", l.Fault)
		}
		switch {
		case l.Error == "" && !got.equal(next):
			return fault("it succeeded, and the handle shows %v, want %v", got, next)
		case l.Unknown && !got.equal(next) && !got.equal(now):
			return fault("opened again it is %v, want %v or %v", got, now, next)
		case l.Error != "" && !l.Unknown && !got.equal(now):
			if got.equal(next) {
				return fault("it was reported as failed, and it happened")
			}
			return fault("it failed, and the handle shows %v, want %v", got, now)
		case l.Error == "" && !c.possible(now):
			return fault("documents were added twice")
		case l.Error != "" && i > 0 && lines[i-1].Error != "" && !f.lasts && c.possible(now):
			return fault("a change that nothing stood in the way of failed, after %q", lines[i-1].Error)
		}
		now = got
	}
	if n := len(lines); n == 0 || lines[n-1].Step >= 0 && n < len(changes) {
		return nil, fmt.Errorf("exit status %d after %d changes: %s", res.code, n, res.errors)
	}
	return []*state{now}, nil
}

// tidy: a process that failed leaves nothing beside the index.
func (s *scenario) tidy(dir string, res *result) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var left []string
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case name == s.index(dir):
			if s.base == "" && res.code != 0 && res.code != exitUnknown {
				left = append(left, e.Name())
			}
		case s.out != "" && e.Name() == s.out: // it is looked at for itself
		default:
			left = append(left, e.Name())
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("exit status %d, %q, and %v is left", res.code, strings.TrimSpace(res.errors), left)
	}
	return nil
}
