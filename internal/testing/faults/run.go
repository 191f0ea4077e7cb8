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

// Options for Start.
type Options struct {
	// Root is the folder that matters: calls on other files pass unseen.
	Root string
	// Decide says what becomes of a call. It is called from one goroutine; the call
	// is its own. nil lets all pass.
	Decide func(*Call) Action
	// Record fills in Data, and has this process carry out all calls that change
	// files but those that open, so that their order is that in which Decide hears
	// of them.
	Record bool
}

// Run is a process whose calls are decided about.
type Run struct {
	cmd      *exec.Cmd
	o        Options
	listener int
	pidfd    int
	starter  int // the thread that started the child
	started  chan struct{}
	wake     [2]int // a pipe: its end tells the supervisor that there is nothing to come
	done     chan struct{}

	n      int
	killed bool
	dying  bool // kill at the next call
	err    error
}

// Available returns why calls cannot be decided about on this machine, nil if
// they can.
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
	r := &Run{cmd: cmd, o: o, started: make(chan struct{}), done: make(chan struct{})}
	if err := unix.Pipe2(r.wake[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	begun := make(chan error)
	go r.start(begun)
	if err := <-begun; err != nil {
		return nil, err
	}
	return r, nil
}

// start starts the child from a thread that has the filter, and that ends with
// this goroutine.
func (r *Run) start(begun chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // the main thread would never end
		go r.start(begun)
		// Until the other has a thread of its own, this one stays taken.
		<-r.started
		runtime.UnlockOSThread()
		return
	}
	r.starter = unix.Gettid()
	err := startable(r.cmd)
	var listener int
	if err == nil {
		listener, err = install()
	}
	if err != nil {
		close(r.started)
		begun <- errors.Join(err, unix.Close(r.wake[0]), unix.Close(r.wake[1]))
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
	begun <- err
}

// startable returns why a program cannot be started. A child that fails to become the
// program tells of it in a call that waits for the supervisor, and until then the
// goroutine that forked keeps its place in the scheduler: with one place both would wait
// for good.
func startable(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	name := cmd.Path
	if !filepath.IsAbs(name) {
		name = filepath.Join(cmd.Dir, name)
	}
	for _, at := range []string{cmd.Dir, name} {
		if at == "" {
			continue
		}
		if err := unix.Access(at, unix.X_OK); err != nil {
			return &os.PathError{Op: "fork/exec", Path: at, Err: err}
		}
	}
	return nil
}

// Wait waits for the end of the process and returns what [exec.Cmd.Wait] does;
// where the calls could not be followed, that.
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

// Calls is how many calls had a number; valid after Wait.
func (r *Run) Calls() int { return r.n }

// Killed tells whether an action killed the process; valid after Wait.
func (r *Run) Killed() bool { return r.killed }

func (r *Run) supervise() {
	defer close(r.done)
	defer unix.Close(r.wake[0])
	defer unix.Close(r.listener)
	for {
		fds := []unix.PollFd{{Fd: int32(r.listener), Events: unix.POLLIN}, {Fd: int32(r.wake[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			r.fault(err)
			return
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			if fds[1].Revents != 0 || fds[0].Revents != 0 {
				return
			}
			continue
		}
		n, err := receive(r.listener)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) { // it died, or came back from waiting
			continue
		} else if err != nil {
			r.fault(err)
			return
		}
		if err := r.handle(n); err != nil {
			r.fault(err)
		}
	}
}

// fault ends the process, since what follows is not decided about.
func (r *Run) fault(err error) {
	if r.killed { // the dead answer no questions
		return
	}
	r.err = errors.Join(r.err, err)
	<-r.started
	r.kill()
}

func (r *Run) kill() {
	if !r.killed {
		r.killed = true
		_ = unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
	}
}

func (r *Run) handle(n notification) error {
	again := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if int(n.pid) == r.starter {
		return r.answer(again)
	}
	if r.killed {
		return nil
	}
	c, err := r.understand(n)
	if err != nil {
		if errors.Is(answer(r.listener, again), unix.ENOENT) { // the thread ended meanwhile, as where another one exits
			return nil
		}
		return err
	}
	if c == nil {
		return r.answer(again)
	}
	<-r.started // what comes before the program itself, as a failure to start it, is not of the root
	if r.dying {
		r.kill()
		return nil
	}
	if c.Op == Print {
		r.o.Decide(c)
		return r.answer(again)
	}
	r.n++
	c.N = r.n
	act := r.o.Decide(c)
	switch act.kind {
	case killBefore:
		r.kill()
		return nil
	case tear:
		if c.Op == Write {
			if _, err := r.perform(c, int64(act.bytes)); err != nil {
				return err
			}
		}
		r.kill()
		return nil
	case killAfter:
		if !performable(c.Op) {
			r.dying = true
			return r.answer(again)
		}
		var errno syscall.Errno
		if _, err := r.perform(c, c.Size); err != nil && !errors.As(err, &errno) { // it may fail, as in removing what is not there
			return err
		}
		r.kill()
		return nil
	case fail:
		return r.answer(response{id: n.id, errno: -int32(act.errno)})
	case interrupt:
		if err := unix.PidfdSendSignal(r.pidfd, act.sig, nil, 0); err != nil {
			return err
		}
	}
	if r.o.Record && performable(c.Op) {
		val, err := r.perform(c, c.Size)
		var errno syscall.Errno
		if errors.As(err, &errno) {
			return r.answer(response{id: n.id, errno: -int32(errno)})
		} else if err != nil {
			return err
		}
		return r.answer(response{id: n.id, val: val})
	}
	return r.answer(again)
}

func (r *Run) answer(a response) error {
	if err := answer(r.listener, a); err != nil && !errors.Is(err, unix.ENOENT) { // the thread was killed meanwhile
		return err
	}
	return nil
}

// within tells whether a path is the root or below it.
func (r *Run) within(path string) bool {
	return path == r.o.Root || strings.HasPrefix(path, r.o.Root+"/")
}

// CheckedWait is Wait with a limit, after which the process is killed.
func (r *Run) CheckedWait(limit time.Duration) error {
	timer := time.AfterFunc(limit, func() { _ = r.cmd.Process.Signal(os.Kill) })
	err := r.Wait()
	if !timer.Stop() {
		return fmt.Errorf("no end after %v: %w", limit, errors.Join(err, os.ErrDeadlineExceeded))
	}
	return err
}
