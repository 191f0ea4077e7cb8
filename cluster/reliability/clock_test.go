//go:build linux && amd64

package reliability

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// errSkew: clocks of processes cannot be set here.
var errSkew = errors.New("the clock of a process cannot be set on this machine")

// startSkewed starts a process whose clock of the day is wrong by some time; its
// monotonic clock is right. All of it sees that, the NATS server in it too: Go asks the
// kernel's page of code that is in each process (the vDSO) for times, and what is written
// there before the first instruction runs asks the kernel itself and adds the difference.
func startSkewed(cmd *exec.Cmd, by time.Duration) error {
	runtime.LockOSThread() // who traces is a thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", errSkew, err)
	}
	pid := cmd.Process.Pid
	fail := func(err error) error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("%w: %w", errSkew, err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || !status.Stopped() {
		return fail(fmt.Errorf("it does not stop at its start: %w", err))
	}
	at, err := clockFunction(pid)
	if err != nil {
		return fail(err)
	}
	code := []byte{
		0xb8, 0xe4, 0, 0, 0, // mov eax, 228: clock_gettime(edi, rsi)
		0x0f, 0x05, //          syscall
		0x85, 0xff, //          test edi, edi: 0 is the time of the day
		0x75, 0x0d, //          jnz to the end
		0x48, 0xb9, //          mov rcx, seconds
		0, 0, 0, 0, 0, 0, 0, 0,
		0x48, 0x01, 0x0e, //    add [rsi], rcx
		0xc3, //                ret
	}
	binary.LittleEndian.PutUint64(code[13:], uint64(int64(by/time.Second)))
	if n, err := syscall.PtracePokeData(pid, at, code); err != nil || n != len(code) {
		return fail(fmt.Errorf("writing its code: %w", err))
	}
	if err := syscall.PtraceDetach(pid); err != nil {
		return fail(err)
	}
	return nil
}

// clockFunction is where clock_gettime of a process's vDSO begins.
func clockFunction(pid int) (uintptr, error) {
	auxv, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	base := uint64(0)
	for b := auxv; len(b) >= 16; b = b[16:] {
		if binary.LittleEndian.Uint64(b) == 33 { // AT_SYSINFO_EHDR
			base = binary.LittleEndian.Uint64(b[8:])
		}
	}
	if base == 0 {
		return 0, errors.New("the process has no vDSO")
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	image := make([]byte, 16<<10)
	n, err := mem.ReadAt(image, int64(base))
	if n == 0 {
		return 0, err
	}
	f, err := elf.NewFile(bytes.NewReader(image[:n]))
	if err != nil {
		return 0, err
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return uintptr(base + s.Value), nil
		}
	}
	return 0, errors.New("the vDSO has no clock")
}
