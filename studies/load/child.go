package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/plaid-ir/plaid/server/daemon"
)

// envServe makes this program `plaid serve` for the folder that it names: the soak runs
// itself so, to see the memory of the service alone.
const envServe = "PLAID_LOAD_SERVE"

var errNotAsked = errors.New(envServe + " is not set")

// serveIfAsked serves until the process is told to end. It says on stdout where.
func serveIfAsked(ctx context.Context) error {
	dir, ok := os.LookupEnv(envServe)
	if !ok {
		return errNotAsked
	}
	c := daemon.NewConfig()
	c.Data, c.Listen, c.LogLevel, c.LogFormat = dir, "127.0.0.1:0", "info", "text"
	return daemon.Run(ctx, c, os.Stderr, nil, func(address string) { fmt.Println(address) })
}

// child is a service in a process of its own.
type child struct {
	cmd     *exec.Cmd
	address string
}

// startChild serves a folder; log takes the log.
func startChild(dir string, log io.Writer) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), envServe+"="+dir)
	c.cmd.Stderr = log
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the service did not start: %w", err), c.cmd.Wait())
	}
	c.address = strings.TrimSpace(line)
	return c, nil
}

// stop ends it in order.
func (c *child) stop() error {
	return errors.Join(c.cmd.Process.Signal(os.Interrupt), c.cmd.Wait())
}

// kill ends it as a crash does.
func (c *child) kill() error {
	err := c.cmd.Process.Kill()
	_ = c.cmd.Wait() // says that it was killed
	return err
}

// memory is what the process holds, in bytes: all that is resident, and what of it is
// not mapped files. Zeros where the system does not tell.
func (c *child) memory() (resident, anonymous int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(string(line), ":")
		n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
		switch name {
		case "VmRSS":
			resident = n << 10
		case "RssAnon":
			anonymous = n << 10
		}
	}
	return resident, anonymous
}
