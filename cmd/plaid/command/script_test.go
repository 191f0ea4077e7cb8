package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/vectors"
)

func TestMain(m *testing.M) {
	effort.Rapid(15, 100)
	testscript.Main(m, map[string]func(){"plaid": func() {
		if os.Getenv("PLAID_TEST_WAITING") != "" {
			files.HookWaiting = func(string) { fmt.Fprintln(os.Stderr, "waiting for the lock") }
		}
		os.Exit(Main())
	}})
}

// Commands of the scripts in testdata/script, beside testscript's own:
//
//	exits CODE plaid ARG…      runs a command line, which must exit so
//	make NAME DOCS DIM [FIRST] writes NAME.npy, NAME-lens.npy, NAME-ids.txt, NAME.jsonl (payload)
//	npy FILE VALUE…            writes an array of float32 [values/4, 4]
//	lengths FILE N…            writes an array of int32
//	cut FILE BYTES             shortens a file
//	put FILE TEXT BYTE N       puts N bytes, given as a number, in the place of TEXT
//	flip FILE TEXT             changes a bit of each occurrence of TEXT
//	hold FILE [reading], release  opens an index for writing, or reading, in another process than plaid
//	interrupt plaid ARG…       stops a command line that waits for a lock
//	json NAME=VALUE…           checks fields of the JSON object on stdout; a.b is b of a
//	http SOCKET|ADDRESS METHOD PATH [BODY [HEADER]]  asks a service, once it answers: status and body on stdout; @FILE is a body from a file
//	eventually PATTERN …       asks as http does, or runs plaid, until the answer matches
//	hub add NAME DIR, …        serves models as a hub does, see serveHub
//	free NAME…                 sets variables to addresses at which a service may listen
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/script/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts", err)
	}
	if effort.Brief() { // those of commands that do several things at once
		scripts = slices.DeleteFunc(scripts, func(name string) bool {
			return !slices.Contains(scriptsOfSeveral, strings.TrimSuffix(filepath.Base(name), ".txt"))
		})
	}
	testscript.Run(t, testscript.Params{
		Files:               scripts,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", "atexit_sleep_ms=0") // a second for each process otherwise
			env.Setenv("HF_HOME", filepath.Join(env.WorkDir, "hf"))
			env.Setenv("HF_ENDPOINT", "http://127.0.0.1:1") // no script asks a hub that it does not start
			examples, err := filepath.Abs("../../../docs/examples/quickstart")
			env.Setenv("SAMPLE", filepath.Join(examples, "scifact-sample"))
			env.Setenv("NANO", filepath.Join(examples, "colbert-nano"))
			env.Setenv("REAL", filepath.Join(examples, "../../../index/interop/testdata/real"))
			return err
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "brief":
				return effort.Brief(), nil
			case "long":
				return effort.Long(), nil
			}
			return false, fmt.Errorf("unknown condition %s", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "make": makeDocs, "npy": makeNPY, "lengths": makeLengths, "cut": cut, "put": put, "flip": flip,
			"hold": hold, "release": release, "interrupt": interrupt, "json": checkJSON, "http": askHTTP, "free": freeAddress, "eventually": eventually,
			"hub": serveHub,
		},
	})
}

var scriptsOfSeveral = []string{"bench", "cluster", "device", "index", "locked", "mcp", "search", "serve", "serving", "text", "watch"}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var ee *exec.ExitError
	if errors.As(err, &ee) {
		got = ee.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// makeDocs writes documents d0, d1, …: each is 3 to 7 random tokens, and
// document 5 is empty.
func makeDocs(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs(args[0])
	docs, dim, first := number(ts, args[1]), number(ts, args[2]), 0
	if len(args) > 3 {
		first = number(ts, args[3])
	}
	rng := rand.New(rand.NewPCG(1, uint64(first)))
	var lengths []int64
	var values []float32
	var ids, payload bytes.Buffer
	for i := first; i < first+docs; i++ {
		n := 3 + rng.IntN(5)
		if i == 5 {
			n = 0
		}
		lengths = append(lengths, int64(n))
		for range n * dim {
			values = append(values, float32(rng.NormFloat64()))
		}
		fmt.Fprintf(&ids, "d%d\n", i)
		fmt.Fprintf(&payload, `{"_id": "d%d", "title": "Title %d", "text": "body & text of %d"}`+"\n", i, i, i)
	}
	ts.Check(writeNPY(name+".npy", values, dim))
	ts.Check(writeInts(name+"-lens.npy", lengths))
	ts.Check(os.WriteFile(name+"-ids.txt", ids.Bytes(), 0o666))
	ts.Check(os.WriteFile(name+".jsonl", payload.Bytes(), 0o666))
}

func number(ts *testscript.TestScript, s string) int {
	n, err := strconv.Atoi(s)
	ts.Check(err)
	return n
}

func writeNPY(path string, values []float32, dim int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(vectors.WriteNPY(f, "<f4", []int{len(values) / dim, dim}, values), f.Close())
}

func writeInts(path string, values []int64) error {
	w, err := vectors.CreateNPY(path, "<i4", len(values))
	if err != nil {
		return err
	}
	return errors.Join(w.Ints(values), w.Close())
}

func makeNPY(ts *testscript.TestScript, _ bool, args []string) {
	var values []float32
	for _, a := range args[1:] {
		v, err := strconv.ParseFloat(a, 32)
		ts.Check(err)
		values = append(values, float32(v))
	}
	ts.Check(writeNPY(ts.MkAbs(args[0]), values, 4))
}

func makeLengths(ts *testscript.TestScript, _ bool, args []string) {
	var values []int64
	for _, a := range args[1:] {
		values = append(values, int64(number(ts, a)))
	}
	ts.Check(writeInts(ts.MkAbs(args[0]), values))
}

func cut(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	info, err := os.Stat(path)
	ts.Check(err)
	ts.Check(os.Truncate(path, info.Size()-int64(number(ts, args[1]))))
}

func put(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	run := bytes.Repeat([]byte{byte(number(ts, args[2]))}, number(ts, args[3]))
	ts.Check(os.WriteFile(path, bytes.ReplaceAll(b, []byte(args[1]), run), 0o666))
}

func flip(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	at := 0
	for {
		i := bytes.Index(b[at:], []byte(args[1]))
		if i < 0 {
			break
		}
		at += i
		b[at+len(args[1])-1] ^= 1
	}
	if at == 0 {
		ts.Fatalf("%s does not have %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(path, b, 0o666))
}

// holding has the index that a script holds open, by script.
var holding sync.Map

func hold(ts *testscript.TestScript, _ bool, args []string) {
	ix, err := index.Open(context.Background(), ts.MkAbs(args[0]), &index.Options{Write: len(args) == 1})
	ts.Check(err)
	holding.Store(ts, ix)
	ts.Defer(func() { _ = ix.Close() })
}

func release(ts *testscript.TestScript, _ bool, _ []string) {
	ix, _ := holding.Load(ts)
	ts.Check(ix.(*index.Index).Close())
}

func interrupt(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command(args[0], append(args[1:], "--lock-timeout=5m")...)
	path, err := exec.LookPath(args[0])
	ts.Check(err)
	cmd.Path, cmd.Dir, cmd.Env = path, ts.Getenv("WORK"), append(os.Environ(), "PLAID_TEST_WAITING=1")
	stderr, err := cmd.StderrPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	defer time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
	lines := bufio.NewScanner(stderr)
	waiting := false
	var all []string
	for lines.Scan() {
		all = append(all, lines.Text())
		if strings.Contains(lines.Text(), "waiting for the lock") && !waiting {
			waiting = true
			ts.Check(cmd.Process.Signal(os.Interrupt))
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); !waiting || code != exitInterrupted {
		ts.Fatalf("exit status %d after %q", code, all)
	}
}

func checkJSON(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile("stdout")
	if strings.Count(text, "\n") != 1 {
		ts.Fatalf("stdout is not one line: %s", text)
	}
	var object any
	ts.Check(json.Unmarshal([]byte(text), &object))
	for _, arg := range args {
		name, want, _ := strings.Cut(arg, "=")
		value := object
		for part := range strings.SplitSeq(name, ".") {
			m, ok := value.(map[string]any)
			if !ok {
				ts.Fatalf("no field %s in %s", name, text)
			}
			if value, ok = m[part]; !ok {
				ts.Fatalf("no field %s in %s", name, text)
			}
		}
		got, err := json.Marshal(value)
		ts.Check(err)
		if string(got) != want {
			ts.Fatalf("%s is %s, want %s", name, got, want)
		}
	}
}
