package docs_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/freeports"
)

// block is a fenced block of a page.
type block struct {
	line     int
	language string
	text     string
}

func blocksOf(t *testing.T, page string) []block {
	var blocks []block
	var open *block
	for _, l := range readLines(t, page) {
		trimmed := strings.TrimSpace(l.text)
		switch {
		case open == nil && strings.HasPrefix(trimmed, "```"):
			open = &block{line: l.number, language: strings.TrimPrefix(trimmed, "```")}
		case open != nil && trimmed == "```":
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += l.text + "\n"
		}
	}
	return blocks
}

// Every command of these pages runs, in their order, in a folder that holds the examples and
// nothing else. A block without a language is what the commands before it print.
func TestCommandsOfPages(t *testing.T) {
	if !effort.Long() {
		t.Skip("takes half a minute")
	}
	if runtime.GOOS == "windows" {
		t.Skip("the commands are for a shell of POSIX")
	}
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(bin, "plaid"), "./cmd/plaid")
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	goTool, err := exec.LookPath("go")
	require.NoError(t, err)
	// The pages call go for what a fresh machine needs it for, and for nothing else. The program is
	// installed already, and the tests are what runs here.
	writeProgram(t, bin, "go", fmt.Sprintf(`case "$*" in
"run ./docs/examples/quickstart") cd '%s' && exec '%s' run ./docs/examples/quickstart ;;
"install ./cmd/plaid" | "test ./...") ;;
*) echo "go $*: not expected" >&2; exit 1 ;;
esac`, root, goTool))
	for _, page := range []string{"README.md", "docs/guide.md"} {
		t.Run(page, func(t *testing.T) { runPage(t, page, root, bin, nil) })
	}
	t.Run("docs/cluster.md", func(t *testing.T) { // its services reach each other by ports
		free := freeports.Find(t, 2)
		runPage(t, "docs/cluster.md", root, bin, strings.NewReplacer("8081", free[0], "8082", free[1]))
	})
}

func writeProgram(t *testing.T, dir, name, text string) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o777))
}

// runPage runs the commands of a page, whose service has a socket, or the ports that replace those of the page.
func runPage(t *testing.T, page, root, bin string, ports *strings.Replacer) {
	dir := t.TempDir()
	for _, name := range []string{"docs", "index"} {
		require.NoError(t, os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)))
	}
	// The service listens on a socket of its own, and curl finds it there, so that no port is needed.
	short, err := os.MkdirTemp("", "plaid") // a socket's name is a hundred bytes at most
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(short) })
	socket := filepath.Join(short, "s")
	tools := t.TempDir()
	curl, err := exec.LookPath("curl")
	haveCurl := err == nil
	if haveCurl {
		help, err := exec.Command(curl, "--help", "all").Output()
		haveCurl = err == nil && bytes.Contains(help, []byte("--json"))
	}
	through := "--unix-socket '" + socket + "'"
	if ports != nil {
		through = ""
	} else {
		ports = strings.NewReplacer()
	}
	writeProgram(t, tools, "curl", fmt.Sprintf(`exec '%s' --silent --show-error --fail-with-body --max-time 300 %s "$@"`, curl, through))

	var script bytes.Buffer
	script.WriteString("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null && wait || true' EXIT\n")
	blocks := blocksOf(t, page)
	ran := 0
	for i, b := range blocks {
		switch b.language {
		case "sh":
			if !haveCurl && strings.Contains(b.text, "curl ") {
				t.Logf("%s:%d: left out: there is no curl that knows --json", page, b.line)
				continue
			}
			ran++
			fmt.Fprintf(&script, "echo 'line %d' >&2\n{\n%s} >block.%d\n", b.line, ports.Replace(b.text), i)
		case "python":
			fmt.Fprintf(&script, "python-block %d\n", i)
			writePython(t, tools, dir, i, b.text)
		}
	}
	require.NotZero(t, ran)
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+tools+":"+bin+":"+os.Getenv("PATH"), "PLAID_SERVE_LISTEN=unix:"+socket, "PLAID_DEVICE=",
		"PYTHONPATH="+filepath.Join(root, "python", "src"), "PLAID_BINARY="+filepath.Join(bin, "plaid"), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Run(), "%s: the commands of the block at the last line that is named here\n%s", page, &stderr)

	for i, b := range blocks {
		if b.language != "" {
			continue
		}
		require.Positive(t, i)
		got, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("block.%d", i-1)))
		require.NoError(t, err, "%s:%d: no commands before it", page, b.line)
		assert.Contains(t, string(got), b.text, "%s:%d", page, b.line)
	}
}

// writePython makes a command of a block that saves arrays. It runs with the vectors of the sample,
// where Python and NumPy are there ($PLAID_PYTHON, or python3); otherwise the files are written here,
// as what follows needs them.
func writePython(t *testing.T, tools, dir string, number int, text string) {
	sample := filepath.Join("docs", "examples", "quickstart", "scifact-sample", "vectors")
	python := os.Getenv("PLAID_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import numpy").Run() == nil {
		program := fmt.Sprintf(`import numpy
_v = %q
docs = numpy.split(numpy.load(_v + "/docs.npy"), numpy.cumsum(numpy.load(_v + "/doclens.npy"))[:-1])
queries = list(numpy.load(_v + "/queries.npy").astype("float32"))
ids = open(_v + "/doc_ids.txt").read().split()
%s`, sample, text)
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("block%d.py", number)), []byte(program), 0o666))
		writeProgram(t, tools, "python-block", fmt.Sprintf(`exec '%s' "block$1.py"`, python))
		return
	}
	t.Logf("block %d: %s has no NumPy; the files are made without it", number, python)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "querylens.npy"), int32s(24, 32), 0o666))
	writeProgram(t, tools, "python-block", fmt.Sprintf("cp %[1]s/docs.npy %[1]s/doclens.npy %[1]s/queries.npy . && cp %[1]s/doc_ids.txt ids.txt", sample))
}

// int32s is the .npy file of an array that has the value n times.
func int32s(n, value int) []byte {
	header := fmt.Sprintf("{'descr': '<i4', 'fortran_order': False, 'shape': (%d,), }", n)
	header += strings.Repeat(" ", 117-len(header)) + "\n"
	out := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	out = append(out, header...)
	for range n {
		out = binary.LittleEndian.AppendUint32(out, uint32(value))
	}
	return out
}
