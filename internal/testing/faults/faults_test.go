//go:build linux && (amd64 || arm64)

package faults

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const childVariable = "FAULTS_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child changes files in every way that is followed; the numbers are those of
// its calls.
func child(dir string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	f, err := os.OpenFile(a, os.O_CREATE|os.O_RDWR, 0o600) // 1
	if err != nil {
		return err
	}
	if _, err := f.WriteAt([]byte(strings.Repeat("x", 5000)), 0); err != nil { // 2
		return err
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	if _, err := f.Write([]byte("yyyy")); err != nil { // 3
		return err
	}
	if err := f.Sync(); err != nil { // 4
		return err
	}
	if err := f.Truncate(5002); err != nil { // 5
		return err
	}
	if err := f.Chmod(0o640); err != nil { // 6
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil { // 7
		return err
	}
	if err := os.Rename(a, b); err != nil { // 8
		return err
	}
	fmt.Println("renamed")
	if err := os.Mkdir(a, 0o700); err != nil { // 9
		return err
	}
	t, err := os.Create(filepath.Join(a, "copy")) // 10
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(t, f); err != nil { // 11: the kernel's copying is refused
		return err
	}
	if err := errors.Join(t.Close(), os.Remove(t.Name()), os.Remove(a)); err != nil { // 12, 13 and 14: not a file, a folder
		return err
	}
	if os.Getenv(signalVariable) != "" {
		<-stop // it is on its way
		return errors.New("stopped")
	}
	return f.Close()
}

const childCalls = 14

// signalVariable tells the child that a signal will come.
const signalVariable = "PLAID_FAULTS_SIGNAL"

func childRun(t *testing.T, o Options) (dir string, r *Run, stdout string, err error) {
	t.Helper()
	if err := Available(); err != nil {
		if os.Getenv("PLAID_REQUIRE_FAULTS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir = t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"="+dir, "GORACE=atexit_sleep_ms=0")
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	o.Root = dir
	r, err = Start(cmd, o)
	require.NoError(t, err)
	err = r.CheckedWait(5 * time.Minute)
	if err != nil && errs.Len() > 0 {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return dir, r, out.String(), err
}

// at does something at one call.
func at(n int, a Action) func(*Call) Action {
	return func(c *Call) Action {
		if c.N == n {
			return a
		}
		return Pass()
	}
}

func size(t *testing.T, path string) int64 {
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

func TestCallsAreSeen(t *testing.T) {
	for _, record := range []bool{false, true} {
		var seen []string
		var dir string
		dir, r, stdout, err := childRun(t, Options{Record: record, Decide: func(c *Call) Action {
			seen = append(seen, c.String())
			if record && c.Op == Write {
				require.Len(t, c.Data, int(c.Size))
				require.Equal(t, c.N == 3, string(c.Data) == "yyyy")
			}
			return Pass()
		}})
		require.NoError(t, err)
		require.Equal(t, childCalls, r.Calls())
		require.False(t, r.Killed())
		require.Equal(t, "renamed\n", stdout)
		text := strings.ReplaceAll(strings.Join(seen, "\n"), dir, "D")
		require.Contains(t, text, `1 create D/a
2 write D/a [0,+5000]
3 write D/a [5000,+4]
4 sync D/a
5 truncate D/a to 5002
6 chmod D/a
7 lock D/a
8 rename D/a to D/b
0 print `)
		require.True(t, strings.HasSuffix(text, `
9 mkdir D/a
10 create D/a/copy
11 write D/a/copy [0,+5002]
12 unlink D/a/copy
13 unlink D/a
14 rmdir D/a`), text)
		require.EqualValues(t, 5002, size(t, filepath.Join(dir, "b")))
	}
}

func TestKill(t *testing.T) {
	for n := 1; n <= childCalls; n++ {
		for _, after := range []bool{false, true} {
			act, done := KillBefore(), n-1
			if after {
				act, done = KillAfter(), n
			}
			dir, r, stdout, err := childRun(t, Options{Decide: at(n, act)})
			if after && n == childCalls { // nothing came to kill it at, or it was killed: both are right
				require.NoDirExists(t, filepath.Join(dir, "a"))
				continue
			}
			require.Error(t, err)
			require.True(t, r.Killed())
			require.Equal(t, n > 8, stdout != "", "print is let through")
			what := fmt.Sprintf("call %d, after %v", n, after)
			a := filepath.Join(dir, "a")
			switch {
			case done == 0:
				require.NoFileExists(t, a, what)
			case done < 8:
				require.EqualValues(t, []int64{0, 5000, 5004, 5004, 5002, 5002, 5002}[done-1], size(t, a), what)
			default:
				require.EqualValues(t, 5002, size(t, filepath.Join(dir, "b")), what)
				_, err := os.Stat(a)
				require.Equal(t, done > 8 && done < 14, err == nil, what)
				_, err = os.Stat(filepath.Join(a, "copy"))
				require.Equal(t, done > 9 && done < 12, err == nil, what)
			}
		}
	}
}

func TestTear(t *testing.T) {
	dir, r, _, err := childRun(t, Options{Decide: at(2, Tear(512))})
	require.Error(t, err)
	require.True(t, r.Killed())
	require.EqualValues(t, 512, size(t, filepath.Join(dir, "a")))
}

func TestFail(t *testing.T) {
	for n := 1; n <= childCalls; n++ {
		_, r, _, err := childRun(t, Options{Decide: at(n, Fail(syscall.ENOSPC))})
		if n == 13 { // os.Remove goes on to rmdir
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "no space left", "call %d", n)
		require.False(t, r.Killed())
	}
}

func TestSignal(t *testing.T) {
	t.Setenv(signalVariable, "1")
	_, _, _, err := childRun(t, Options{Decide: at(9, Signal(syscall.SIGTERM))})
	require.ErrorContains(t, err, "stopped")
}

// A process that hangs ends, and one that cannot be started is an error.
func TestLimits(t *testing.T) {
	childRun(t, Options{}) // skips
	absent := filepath.Join(t.TempDir(), "absent")
	cmd := exec.Command(absent)
	_, err := Start(cmd, Options{Root: t.TempDir()})
	require.ErrorIs(t, err, os.ErrNotExist)
	cmd = exec.Command("sleep", "60")
	cmd.Dir = absent
	_, err = Start(cmd, Options{Root: t.TempDir()})
	require.ErrorIs(t, err, os.ErrNotExist)
	cmd = exec.Command("sleep", "60")
	r, err := Start(cmd, Options{Root: t.TempDir()})
	require.NoError(t, err)
	require.ErrorIs(t, r.CheckedWait(100*time.Millisecond), os.ErrDeadlineExceeded)
}
