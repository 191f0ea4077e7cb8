//go:build linux && (amd64 || arm64)

package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Options of Start.
type Options struct {
	// Root is the folder whose files are observed: calls on other files pass.
	Root string
	// Decide decides about a call, which it may keep. It is called from one goroutine. A nil
	// Decide lets all calls pass.
	Decide func(*Call) Action
	// Record sets Data, and makes this process perform all calls that change
	// files, except for those that open them, so that they are performed in the order of the
	// calls of Decide.
	Record bool
}

// Run is a process whose calls are intercepted.
type Run struct {
	cmd      *exec.Cmd
	options  Options
	listener int
	pidfd    int
	starter  int // the thread that started the child
	started  chan struct{}
	wake     [2]int // a pipe. Closing it tells the supervisor that no more calls will come
	done     chan struct{}

	calls  int // calls with a number
	killed bool
	dying  bool // the process is killed at its next call
	err    error
}

// Available returns why calls cannot be intercepted on this machine, nil if they can.
var Available = sync.OnceValue(func() error {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = []string{}
	r, err := Start(cmd, Options{Root: "/nowhere"})
	if err == nil {
		err = r.Wait()
	}
	if err != nil {
		return fmt.Errorf("system calls cannot be intercepted: %w", err)
	}
	return nil
})

// Start starts the process.
func Start(cmd *exec.Cmd, o Options) (*Run, error) {
	root, err := filepath.EvalSymlinks(o.Root)
	if err != nil {
		root = filepath.Clean(o.Root)
	}
	o.Root = root
	if o.Decide == nil {
		o.Decide = func(*Call) Action { return Pass() }
	}
	r := &Run{cmd: cmd, options: o, started: make(chan struct{}), done: make(chan struct{})}
	if err := unix.Pipe2(r.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	startErr := make(chan error)
	go r.startChild(startErr)
	if err := <-startErr; err != nil {
		return nil, err
	}
	return r, nil
}

// startChild starts the child from a thread that has the filter, and that ends with
// this goroutine.
func (r *Run) startChild(startErr chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // the main thread would never end
		go r.startChild(startErr)
		// Keep this thread until the other goroutine has locked another one.
		<-r.started
		runtime.UnlockOSThread()
		return
	}
	r.starter = unix.Gettid()
	err := checkStartable(r.cmd)
	var listener int
	if err == nil {
		listener, err = installFilter()
	}
	if err != nil {
		close(r.started)
		startErr <- errors.Join(err, unix.Close(r.wake[0]), unix.Close(r.wake[1]))
		return
	}
	r.listener = listener
	go r.supervise()
	err = r.cmd.Start()
	if err == nil {
		r.pidfd, err = unix.PidfdOpen(r.cmd.Process.Pid, 0)
		if err != nil {
			err = errors.Join(err, r.cmd.Process.Kill(), r.cmd.Wait())
		}
	}
	if err != nil {
		_ = unix.Close(r.wake[1])
	}
	close(r.started)
	if err != nil {
		<-r.done
	}
	startErr <- err
}

// checkStartable returns why a program cannot be started. A child that fails to execute the
// program reports that by a call that waits for the supervisor, and until then the
// goroutine that forked blocks its processor of the scheduler: with one processor, both would wait
// forever.
func checkStartable(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	name := cmd.Path
	if !filepath.IsAbs(name) {
		name = filepath.Join(cmd.Dir, name)
	}
	for _, path := range []string{cmd.Dir, name} {
		if path == "" {
			continue
		}
		if err := unix.Access(path, unix.X_OK); err != nil {
			return &os.PathError{Op: "fork/exec", Path: path, Err: err}
		}
	}
	return nil
}

// Wait waits for the end of the process and returns the error of [exec.Cmd.Wait], or
// that of intercepting its calls.
func (r *Run) Wait() error {
	err := r.cmd.Wait()
	_ = unix.Close(r.wake[1])
	<-r.done
	_ = unix.Close(r.pidfd)
	if r.err != nil {
		return fmt.Errorf("following the calls of process %d: %w", r.cmd.Process.Pid, r.err)
	}
	return err
}

// Calls returns the number of calls that had a number. It is valid after Wait.
func (r *Run) Calls() int { return r.calls }

// Killed reports whether an action killed the process. It is valid after Wait.
func (r *Run) Killed() bool { return r.killed }

// supervise receives calls and handles them until the process has ended.
func (r *Run) supervise() {
	defer close(r.done)
	defer unix.Close(r.wake[0])
	defer unix.Close(r.listener)
	for {
		fds := []unix.PollFd{
			{Fd: int32(r.listener), Events: unix.POLLIN},
			{Fd: int32(r.wake[0]), Events: unix.POLLIN},
		}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			r.failRun(err)
			return
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			if fds[1].Revents != 0 || fds[0].Revents != 0 {
				return
			}
			continue
		}
		n, err := receive(r.listener)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) { // the caller died, or the wait was interrupted
			continue
		} else if err != nil {
			r.failRun(err)
			return
		}
		if err := r.handle(n); err != nil {
			r.failRun(err)
		}
	}
}

// failRun kills the process after an error, since its later calls would not be intercepted.
func (r *Run) failRun(err error) {
	if r.killed { // calls of a killed process may fail
		return
	}
	r.err = errors.Join(r.err, err)
	<-r.started
	r.killChild()
}

// killChild kills the process, once.
func (r *Run) killChild() {
	if !r.killed {
		r.killed = true
		_ = unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
	}
}

// handle decides about a call, and performs the action.
func (r *Run) handle(n notification) error {
	proceed := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if int(n.pid) == r.starter {
		return r.answer(proceed)
	}
	if r.killed {
		return nil
	}
	c, err := r.parseCall(n)
	if err != nil {
		if errors.Is(answer(r.listener, proceed), unix.ENOENT) { // the thread has ended, since another one exited
			return nil
		}
		return err
	}
	if c == nil {
		return r.answer(proceed)
	}
	<-r.started // calls before the program runs, such as a failure to start it, are not below the root
	if r.dying {
		r.killChild()
		return nil
	}
	if c.Op == Print {
		r.options.Decide(c)
		return r.answer(proceed)
	}
	r.calls++
	c.N = r.calls
	act := r.options.Decide(c)
	switch act.kind {
	case killBefore:
		r.killChild()
		return nil
	case tear:
		if c.Op == Write {
			if _, err := r.perform(c, int64(act.bytes)); err != nil {
				return err
			}
		}
		r.killChild()
		return nil
	case killAfter:
		if !canPerform(c.Op) {
			r.dying = true
			return r.answer(proceed)
		}
		var errno syscall.Errno
		if _, err := r.perform(c, c.Size); err != nil && !errors.As(err, &errno) { // the call itself may fail
			return err
		}
		r.killChild()
		return nil
	case fail:
		return r.answer(response{id: n.id, errno: -int32(act.errno)})
	case interrupt:
		if err := unix.PidfdSendSignal(r.pidfd, act.sig, nil, 0); err != nil {
			return err
		}
	}
	if r.options.Record && canPerform(c.Op) {
		val, err := r.perform(c, c.Size)
		var errno syscall.Errno
		if errors.As(err, &errno) {
			return r.answer(response{id: n.id, errno: -int32(errno)})
		} else if err != nil {
			return err
		}
		return r.answer(response{id: n.id, val: val})
	}
	return r.answer(proceed)
}

// answer sends the response to a call, unless its thread was killed.
func (r *Run) answer(a response) error {
	if err := answer(r.listener, a); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// isBelowRoot reports whether a path is the root or below it.
func (r *Run) isBelowRoot(path string) bool {
	return path == r.options.Root || strings.HasPrefix(path, r.options.Root+"/")
}

// CheckedWait is Wait, but kills the process after a time limit.
func (r *Run) CheckedWait(limit time.Duration) error {
	timer := time.AfterFunc(limit, func() { _ = r.cmd.Process.Signal(os.Kill) })
	err := r.Wait()
	if !timer.Stop() {
		return fmt.Errorf("no end after %v: %w", limit, errors.Join(err, os.ErrDeadlineExceeded))
	}
	return err
}
