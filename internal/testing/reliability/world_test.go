//go:build linux && (amd64 || arm64)

package reliability

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/faults"
	"github.com/plaid-ir/plaid/vectors"
)

// world is the input of one round: collections of documents, and the indexes
// that commands begin with.
type world struct {
	dir       string
	docs, dim int
}

// scenario is a process that changes an index.
type scenario struct {
	name string
	w    *world
	base string // the index that it begins with; "": none
	args func(dir string) []string
	job  *handleJob // instead of args
	// out is what it makes beside the index that it reads, outBase what is there
	// before ("": nothing), and readOut looks at it; the index stays as it is.
	out, outBase string
	readOut      func(path string) (any, error)
	// late: it may fail when what it makes is there already.
	late bool

	// states are what the index holds after so many acknowledgements; calls,
	// printed and made what a run without faults does, lookCalls one that looks at
	// what it has done.
	states           []*state
	added            []content // by step of the handle
	calls, lookCalls []faults.Call
	printed          []byte
	made, madeBefore any
}

func (s *scenario) index(dir string) string { return filepath.Join(dir, "i.plaid") }

// makeWorld prepares a round. The first is the smallest.
func makeWorld(t *testing.T, dir string, round int) *world {
	w := &world{dir: filepath.Join(dir, fmt.Sprint("world", round))}
	w.docs = []int{24, 60, 150, 400}[round%4]
	w.dim = []int{8, 16, 32, 64}[(round+round/4)%4]
	require.NoError(t, os.MkdirAll(w.path("tmp"), 0o777))
	ctx, number := t.Context(), int(*seed)*1000+round*10
	base := documents(0, w.docs, number, w.dim)
	build := func(name string, o index.BuildOptions) *index.Index {
		o.Threads, o.Seed = 1, uint64(number)
		_, err := index.Build(ctx, w.path(name), source(w.dim, base), &o)
		require.NoError(t, err)
		ix, err := index.Open(ctx, w.path(name), &index.Options{Write: true, LockTimeout: lockTimeout})
		require.NoError(t, err)
		return ix
	}
	// The common base has been changed before: several segments, deleted
	// documents, free pages.
	ix := build("base.plaid", index.BuildOptions{})
	_, err := ix.Add(ctx, source(w.dim, documents(w.docs, w.docs/3, number, w.dim)), &index.AddOptions{Threads: 1})
	require.NoError(t, err)
	_, err = ix.BackupTo(ctx, w.path("older.plaid"), nil)
	require.NoError(t, err)
	_, _, err = ix.Delete(ctx, []string{"d0", fmt.Sprint("d", w.docs+1)})
	require.NoError(t, err)
	require.NoError(t, ix.Close())
	// Another engine's folder, to be imported.
	ix = build("plain.plaid", index.BuildOptions{NoDimScales: true, NoCentroidScales: true})
	snap, err := ix.Snapshot()
	require.NoError(t, err)
	_, err = snap.ExportEngine(ctx, w.path("engine"), nil)
	require.NoError(t, err)
	require.NoError(t, errors.Join(snap.Close(), ix.Close()))

	require.NoError(t, writeDocuments(w.path("base.jsonl"), base, w.dim))
	require.NoError(t, writeDocuments(w.path("new.jsonl"), documents(5*w.docs, w.docs/3, number+1, w.dim), w.dim))
	require.NoError(t, writeDocuments(w.path("replace.jsonl"), documents(w.docs/2, w.docs, number+2, w.dim), w.dim))
	var ids strings.Builder
	for i := range w.docs / 3 {
		fmt.Fprintf(&ids, "d%d\n", 2+2*i)
	}
	require.NoError(t, os.WriteFile(w.path("delete.txt"), []byte(ids.String()), 0o666))
	var queries []vectors.Document
	for i := range 6 {
		queries = append(queries, document(fmt.Sprint("q", i, "0"), 1, w.dim))
	}
	require.NoError(t, writeDocuments(w.path("queries.jsonl"), queries, w.dim))
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// scenarios are all processes of a round, each of which has been run once.
func (w *world) scenarios(t *testing.T) []*scenario {
	command := func(name, base string, args ...string) *scenario {
		s := &scenario{name: name, w: w, base: base}
		s.args = func(dir string) []string {
			var a []string
			for _, x := range args {
				x = strings.ReplaceAll(x, "INDEX", s.index(dir))
				a = append(a, strings.NewReplacer("WORLD", w.dir, "DIR", dir).Replace(x))
			}
			return append(a, "--lock-timeout", lockTimeout.String())
		}
		return s
	}
	folder := func(s *scenario) *scenario {
		s.out, s.readOut = "out", readTree
		return s
	}
	backup := func(s *scenario, base string, late bool) *scenario {
		s.out, s.outBase, s.late, s.readOut = "copy.plaid", base, late, readCopy
		return s
	}
	handle := func(name string, small bool) *scenario {
		return &scenario{name: name, w: w, base: "base.plaid", job: &handleJob{Dim: w.dim, Small: small}}
	}
	all := []*scenario{
		command("index", "", "index", "INDEX", "--vectors", "WORLD/base.jsonl", "--metadata", "WORLD/base.jsonl", "--threads", "1"),
		command("index --force", "base.plaid", "index", "INDEX", "--vectors", "WORLD/base.jsonl", "--threads", "1", "--force", "--seed", "5"),
		command("add", "base.plaid", "add", "INDEX", "--vectors", "WORLD/new.jsonl", "--threads", "1"),
		command("add --replace", "base.plaid", "add", "INDEX", "--vectors", "WORLD/replace.jsonl", "--threads", "1", "--replace"),
		command("delete", "base.plaid", "delete", "INDEX", "--ids", "WORLD/delete.txt"),
		command("update", "base.plaid", "update", "INDEX", "--where", "_id LIKE 'd%1' OR v IS NULL", "--set", "seen=true"),
		command("compact", "base.plaid", "compact", "INDEX"),
		command("retrain", "base.plaid", "retrain", "INDEX", "--threads", "1"),
		command("tune", "base.plaid", "tune", "INDEX", "--queries", "WORLD/queries.jsonl", "-k", "5", "--force", "--threads", "1"),
		command("import", "", "import", "WORLD/engine", "INDEX", "--threads", "1"),
		command("import --force", "base.plaid", "import", "WORLD/engine", "INDEX", "--threads", "1", "--force"),
		folder(command("export", "base.plaid", "export", "INDEX", "DIR/out")),
		folder(command("export fast-plaid", "plain.plaid", "export", "INDEX", "DIR/out", "--format", "fast-plaid")),
		backup(command("backup", "base.plaid", "backup", "INDEX", "DIR/copy.plaid"), "", false),
		backup(command("backup anew", "base.plaid", "backup", "INDEX", "DIR/copy.plaid"), "older.plaid", false),
		backup(command("backup --incremental", "base.plaid", "backup", "INDEX", "DIR/copy.plaid", "--incremental"), "older.plaid", true),
		handle("handle", false),
		handle("handle, small transactions", true),
	}
	if !*full && !effort.Long() && *cases == 0 { // of those that are like others, one
		short := []string{"index", "add --replace", "update", "compact", "import --force", "export", "backup anew",
			"backup --incremental", "handle, small transactions"}
		all = slices.DeleteFunc(all, func(s *scenario) bool { return !slices.Contains(short, s.name) })
	}
	for _, s := range all {
		s.rehearse(t)
	}
	return all
}

// readCopy looks at a copy of an index; nil if there is none.
func readCopy(path string) (any, error) {
	s, err := readState(path)
	if s == nil || err != nil {
		return nil, err
	}
	return fmt.Sprint(s, s.docs), nil
}

// readTree is a hash of a folder; nil if there is none.
func readTree(path string) (any, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	h := fnv.New64a()
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		fmt.Fprintln(h, strings.TrimPrefix(name, path), len(b))
		_, _ = h.Write(b)
		return err
	})
	return h.Sum64(), err
}

// files are what a run begins with.
func (s *scenario) files() (image, error) {
	img := image{}
	for name, base := range map[string]string{filepath.Base(s.index("")): s.base, s.out: s.outBase} {
		if base == "" {
			continue
		}
		b, err := os.ReadFile(s.w.path(base))
		if err != nil {
			return nil, err
		}
		img[name] = &blob{b}
	}
	return img, nil
}

// begin makes the folder of a run.
func (s *scenario) begin(dir string) error {
	img, err := s.files()
	if err != nil {
		return err
	}
	img["."] = nil
	return img.write(dir)
}

// result of a process.
type result struct {
	code    int // -1: killed
	printed []byte
	errors  string
}

const processLimit = 5 * time.Minute

// run starts the process under an eye on its calls.
func (s *scenario) run(dir string, look, record bool, decide func(*faults.Call) faults.Action) (*result, error) {
	cmd, stderr := s.command(dir, look)
	res := &result{}
	r, err := faults.Start(cmd, faults.Options{Root: dir, Record: record, Decide: func(c *faults.Call) faults.Action {
		if c.Op == faults.Print {
			res.printed = append(res.printed, c.Data...)
		}
		if decide == nil {
			return faults.Pass()
		}
		return decide(c)
	}})
	if err != nil {
		return nil, err
	}
	err = r.CheckedWait(processLimit)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, err
	}
	res.code, res.errors = cmd.ProcessState.ExitCode(), stderr.String()
	return res, nil
}

func (s *scenario) command(dir string, look bool) (*exec.Cmd, *strings.Builder) {
	var cmd *exec.Cmd
	env := []string{"TMPDIR=" + s.w.path("tmp"), "GORACE=atexit_sleep_ms=0", "GOTRACEBACK=all"}
	if s.job == nil {
		cmd = exec.Command("/proc/self/exe", s.args(dir)...)
		env = append(env, programVariable+"=1")
	} else {
		job := *s.job
		job.Path, job.Look = s.index(dir), look
		text, err := json.Marshal(job)
		if err != nil {
			panic(err)
		}
		cmd = exec.Command("/proc/self/exe")
		env = append(env, handleVariable+"="+string(text))
	}
	cmd.Env = env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	return cmd, &stderr
}

// rehearse runs the process without faults; one that can look at what it has done, with and
// without that.
func (s *scenario) rehearse(t *testing.T) {
	dir := s.w.path("rehearsal")
	looks := []bool{true, false}
	if s.job == nil {
		looks = looks[1:]
	}
	for _, look := range looks {
		require.NoError(t, s.begin(dir))
		before, err := readState(s.index(dir))
		require.NoError(t, err)
		s.calls, s.states = nil, []*state{before}
		if s.out != "" {
			s.madeBefore, err = s.readOut(filepath.Join(dir, s.out))
			require.NoError(t, err)
		}
		res, err := s.run(dir, look, true, func(c *faults.Call) faults.Action {
			s.calls = append(s.calls, *c)
			return faults.Pass()
		})
		require.NoError(t, err, s.name)
		require.Zero(t, res.code, "%s: %s", s.name, res.errors)
		after, err := readState(s.index(dir))
		require.NoError(t, err, s.name)
		require.Empty(t, beside(s.index(dir)))
		s.printed = res.printed
		if s.out != "" {
			s.made, err = s.readOut(filepath.Join(dir, s.out))
			require.NoError(t, err)
			require.NotEqual(t, s.madeBefore, s.made)
			require.Empty(t, s.besides(dir))
		}
		switch {
		case s.job == nil:
			s.lookCalls = s.calls
			s.states = append(s.states, after)
			require.Equal(t, s.name == "compact" || s.out != "", before.equal(after), s.name)
		case look:
			s.learn(t, before)
			s.lookCalls = s.calls
		default:
			for n, c := range changes {
				s.states = append(s.states, c.after(s.states[n], s.added[n]))
			}
			require.True(t, after.equal(s.states[len(changes)]), "%s: the model differs", s.name)
		}
	}
	require.Greater(t, len(s.calls), 5)
	// What is asked of an index after a fault holds without one.
	st, err := readState(s.index(dir))
	require.NoError(t, err)
	require.NoError(t, goesOn(s.index(dir), st))
}

// learn takes from a run what a document that is added hashes to, and checks
// the model of the changes with it.
func (s *scenario) learn(t *testing.T, now *state) {
	lines, err := handleLines(s.printed)
	require.NoError(t, err)
	require.Len(t, lines, len(changes))
	s.added = nil
	for n, c := range changes {
		require.Empty(t, lines[n].Error+lines[n].Fault, "step %d", n)
		added := content{}
		for _, id := range c.ids {
			if v, ok := lines[n].Docs[id]; ok {
				added[id] = v
			}
		}
		s.added = append(s.added, added)
		next := c.after(now, added)
		require.True(t, next.equal(&state{lines[n].Docs, lines[n].Defaults}), "step %d, %v", n, c)
		require.Equal(t, c.kind == "compact", next.equal(now), "step %d, %v", n, c)
		now = next
	}
}

// examine says what is wrong with a folder after a fault, when so many changes
// were acknowledged: the index is in that state, or in the next.
func (s *scenario) examine(dir string, done int) error {
	// The one that was under way may have happened.
	return s.examineFor(dir, done > 0, false, s.states[done:min(done+2, len(s.states))]...)
}

// examineFor does so with the states given. Of what is made beside the index,
// made and failed tell whether it must be there, or must not.
func (s *scenario) examineFor(dir string, made, failed bool, allowed ...*state) error {
	path := s.index(dir)
	got, err := readState(path)
	if err != nil {
		return fmt.Errorf("the index cannot be read: %w", err)
	}
	if !slices.ContainsFunc(allowed, got.equal) {
		var all []string
		for _, want := range allowed {
			all = append(all, got.differs(want))
		}
		return fmt.Errorf("the index is in no state that it may be in: %s", strings.Join(all, "; "))
	}
	if s.out != "" {
		if err := s.examineOut(dir, made, failed); err != nil {
			return err
		}
	}
	if got == nil { // then a build must get by with what is there
		if err := s.again(dir); err != nil {
			return err
		}
		if got, err = readState(path); err != nil {
			return fmt.Errorf("built again it cannot be read: %w", err)
		}
		if want := s.states[len(s.states)-1]; !got.equal(want) {
			return fmt.Errorf("built again it is %s", got.differs(want))
		}
	}
	return goesOn(path, got)
}

// again runs a command once more, without faults.
func (s *scenario) again(dir string) error {
	cmd, stderr := s.command(dir, false)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("it cannot be done again: %w: %s", err, stderr)
	}
	return nil
}

// examineOut looks at what is made beside the index: all of it, or what was
// there before; and it can be made again, with nothing left of the first time.
func (s *scenario) examineOut(dir string, made, failed bool) error {
	path := filepath.Join(dir, s.out)
	got, err := s.readOut(path)
	switch {
	case err != nil:
		return fmt.Errorf("%s cannot be read: %w", s.out, err)
	case got != s.made && got != s.madeBefore:
		return fmt.Errorf("%s is not what it should be: %v, want %v", s.out, got, s.made)
	case made && got != s.made:
		return fmt.Errorf("%s was made and is gone", s.out)
	case failed && got != s.madeBefore && !s.late:
		return fmt.Errorf("%s is there, though that was reported as failed", s.out)
	}
	if got != s.made {
		if err := s.again(dir); err != nil {
			return err
		}
		if got, err = s.readOut(path); err != nil || got != s.made {
			return fmt.Errorf("%s, made again, is %v, want %v: %w", s.out, got, s.made, err)
		}
	}
	if left := s.besides(dir); len(left) > 0 {
		return fmt.Errorf("%s is there, and %v is left", s.out, left)
	}
	if s.outBase == "" { // a folder, which takes no changes, or looked at with another
		return nil
	}
	st, err := readState(path)
	if err != nil {
		return err
	}
	return goesOn(path, st)
}

// besides lists what is neither the index nor what is made of it.
func (s *scenario) besides(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); name != s.out && name != filepath.Base(s.index(dir)) {
			names = append(names, name)
		}
	}
	return names
}

// acknowledged counts the changes that a process said are done.
func (s *scenario) acknowledged(printed []byte) int {
	if s.job == nil {
		return min(len(printed), 1)
	}
	return bytes.Count(printed, []byte("\n"))
}

// shown is a call without the name of the folder.
func shown(s *scenario, c *faults.Call) string {
	dir := s.w.path("rehearsal")
	return strings.ReplaceAll(strings.ReplaceAll(c.String(), dir+"/", ""), dir, "the folder")
}
