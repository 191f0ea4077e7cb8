package index

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

const crashDim = 12

// crashOp is a change that can be repeated from its description.
type crashOp struct {
	Kind    string // build, rebuild, add, replace, delete, payload, compact
	IDs     []string
	Version int
}

// version is which document is meant: a replaced one has the same id but other
// vectors.
type version struct {
	id string
	n  int
	p  int // the version of its payload, if that has been replaced since
}

func (v version) payload() []byte {
	if v.p%4 == 3 {
		return nil
	}
	return fmt.Appendf(nil, `{"v":%d,"p":%d,"fill":%q}`, v.n, v.p, strings.Repeat("y", v.p%150))
}

// document follows from id and version.
func (v version) document() vectors.Document {
	h := fnv.New64a()
	fmt.Fprint(h, v.id, v.n)
	rng := rand.New(rand.NewPCG(h.Sum64(), 0))
	d := vectors.Document{ID: v.id, Tokens: clustered(rng, rng.IntN(7), crashDim)}
	if rng.IntN(3) > 0 {
		d.Payload = fmt.Appendf(nil, `{"v":%d,"fill":%q}`, v.n, strings.Repeat("x", rng.IntN(200)))
	}
	if v.p > 0 {
		d.Payload = version{id: v.id, p: v.p}.payload()
	}
	return d
}

func (op crashOp) documents() []vectors.Document {
	var docs []vectors.Document
	for _, id := range op.IDs {
		docs = append(docs, version{id: id, n: op.Version}.document())
	}
	return docs
}

// after is what an index holds after the change.
func (op crashOp) after(before []version) []version {
	if op.Kind == "compact" {
		return before
	}
	var now []version
	if op.Kind == "payload" {
		for _, v := range before {
			if slices.Contains(op.IDs, v.id) {
				v.p = op.Version
			}
			now = append(now, v)
		}
		return now
	}
	if op.Kind != "build" && op.Kind != "rebuild" {
		for _, v := range before {
			if !slices.Contains(op.IDs, v.id) {
				now = append(now, v)
			}
		}
	}
	if op.Kind != "delete" {
		for _, id := range op.IDs {
			now = append(now, version{id: id, n: op.Version})
		}
	}
	return now
}

func init() { testenv.Children["crash"] = crashChild }

// crashChild changes the index at random until it is killed, and says before
// and after each change what it does.
func crashChild() error {
	chunkBytes, transactionBytes = 250, 400 // many transactions a change
	path := os.Getenv("PLAID_TEST_PATH")
	seed, err := strconv.ParseUint(os.Getenv("PLAID_TEST_SEED"), 10, 64)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(seed, 7))
	var ix *Index
	for n := 1; ; n++ {
		var live []string
		if ix == nil {
			if ix, err = Open(context.Background(), path, &Options{Write: true}); err != nil {
				ix = nil
				if !maybeUnborn(path, err) {
					return err
				}
			}
		}
		if ix != nil {
			if live, err = liveOf(ix); err != nil {
				return err
			}
		}
		op := chooseOp(rng, ix != nil, live)
		op.Version = int(seed)*100_000 + n
		if op.Kind == "rebuild" || rng.IntN(6) == 0 && ix != nil {
			if err := ix.Close(); err != nil {
				return err
			}
			ix = nil
		}
		if ix == nil && op.Kind != "build" && op.Kind != "rebuild" {
			continue
		}
		text, err := json.Marshal(op)
		if err != nil {
			return err
		}
		fmt.Printf("begin %s\n", text)
		if err := op.run(path, ix); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		fmt.Printf("done\n")
	}
}

func liveOf(ix *Index) ([]string, error) {
	s, err := ix.Snapshot()
	if err != nil {
		return nil, err
	}
	ids, _, err := s.idsAndLengths(context.Background(), liveDocs(s.fileSnapshot))
	return ids, errors.Join(err, s.Close())
}

func chooseOp(rng *rand.Rand, there bool, live []string) crashOp {
	some := func(n int) []string {
		var ids []string
		for _, i := range rng.Perm(30)[:n] {
			ids = append(ids, fmt.Sprint("doc", i))
		}
		return ids
	}
	if !there {
		return crashOp{Kind: "build", IDs: append(some(3+rng.IntN(8)), "anchor")}
	}
	switch n := rng.IntN(20); {
	case n < 7:
		ids := slices.DeleteFunc(some(1+rng.IntN(6)), func(id string) bool { return slices.Contains(live, id) })
		if len(ids) > 0 {
			return crashOp{Kind: "add", IDs: ids}
		}
		fallthrough
	case n < 11:
		return crashOp{Kind: "replace", IDs: some(1 + rng.IntN(6))}
	case n < 13:
		return crashOp{Kind: "payload", IDs: some(1 + rng.IntN(8))}
	case n < 15:
		return crashOp{Kind: "delete", IDs: some(1 + rng.IntN(8))}
	case n < 18:
		return crashOp{Kind: "compact"}
	default:
		return crashOp{Kind: "rebuild", IDs: append(some(3+rng.IntN(8)), "anchor")}
	}
}

func (op crashOp) run(path string, ix *Index) error {
	ctx := context.Background()
	docs := op.documents()
	for i := range docs { // at least one token, so that there is something to train on
		if docs[i].ID == "anchor" {
			docs[i].Tokens = append(docs[i].Tokens, anchorToken()...)
		}
	}
	src, err := vectors.FromDocuments(crashDim, docs)
	if err != nil {
		return err
	}
	switch op.Kind {
	case "build", "rebuild":
		_, err = Build(ctx, path, src, &BuildOptions{Force: op.Kind == "rebuild", Centroids: 5, Threads: 1, Seed: uint64(op.Version)})
	case "add", "replace":
		_, err = ix.Add(ctx, src, &AddOptions{Replace: op.Kind == "replace", Threads: 1})
	case "delete":
		_, _, err = ix.Delete(ctx, op.IDs)
	case "payload":
		payloads := map[string][]byte{}
		for _, id := range op.IDs {
			payloads[id] = version{id: id, p: op.Version}.payload()
		}
		_, _, err = ix.SetPayload(ctx, payloads)
	case "compact":
		err = ix.Compact(ctx, nil)
	}
	return err
}

// requireNothingBeside: a folder with one file at most. Where the file system can only
// name a new file by a link, a first build that was killed between the two names of its
// file leaves both; who writes to it next takes one away.
func requireNothingBeside(t *testing.T, path string, unborn bool, kill int) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	if unborn && len(entries) == 2 {
		first, err := entries[0].Info()
		require.NoError(t, err)
		second, err := entries[1].Info()
		require.NoError(t, err)
		require.True(t, os.SameFile(first, second), "kill %d leaves %v", kill, entries)
		return
	}
	require.LessOrEqual(t, len(entries), 1, "kill %d leaves %v", kill, entries)
}

func anchorToken() []float32 {
	v := make([]float32, crashDim)
	v[3] = 1
	return v
}

func documentsOf(state []version) []vectors.Document {
	var docs []vectors.Document
	for _, v := range state {
		d := v.document()
		if v.id == "anchor" {
			d.Tokens = append(d.Tokens, anchorToken()...)
		}
		docs = append(docs, d)
	}
	return docs
}

// maybeUnborn: what a build that was killed before its commit may leave.
func maybeUnborn(path string, err error) bool {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrUnfinished) {
		return true
	}
	info, serr := os.Stat(path)
	return serr == nil && info.Size() == 0 && errors.Is(err, storage.ErrNotIndex)
}

// crashState is what the parent knows.
type crashState struct {
	acked    []version
	built    bool // a build was acknowledged
	inFlight *crashOp
	ops      map[string]int // acknowledged, by kind
	cut      map[string]int // in flight, by kind
	landed   int            // of those in flight, the ones that had been committed
}

// A process that changes an index is killed at random moments. The index then
// holds all changes that were acknowledged, and the one that was not either
// wholly or not at all.
func TestKilledAtAnyMoment(t *testing.T) {
	kills := effort.Cases(20, 200)
	dir := t.TempDir()
	path := filepath.Join(dir, "crash.plaid")
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)) // the moments of killing are as random
	st := &crashState{ops: map[string]int{}, cut: map[string]int{}}
	// A busy machine may get nothing done before a kill: then there are more, each after more time.
	for kill := 0; kill < kills || len(st.ops) == 0 && kill < 2*kills; kill++ {
		if kill%10 == 9 { // first builds are killed as well
			require.NoError(t, os.RemoveAll(path)) // if there is one
			*st = crashState{ops: st.ops, cut: st.cut, landed: st.landed}
		}
		delay := time.Duration(rng.IntN(80_000)) * time.Microsecond
		if kill%10 == 5 {
			delay += 200 * time.Millisecond
		}
		delay += time.Duration(max(0, kill-kills+1)) * time.Second
		st.runAndKill(t, path, kill, delay)
		testenv.WaitUnlocked(t, path)
		st.check(t, path)
		requireNothingBeside(t, path, !st.built, kill)
	}
	t.Logf("acknowledged %v; killed during %v, of which %d were committed", st.ops, st.cut, st.landed)
	if !effort.Long() { // too few kills to hit every kind of operation, on a slow machine at least
		require.NotEmpty(t, st.ops)
		require.NotEmpty(t, st.cut)
		return
	}
	require.Greater(t, len(st.ops), 3)
	require.Greater(t, len(st.cut), 3)
}

func (st *crashState) runAndKill(t *testing.T, path string, kill int, delay time.Duration) {
	cmd, _, out, stderr := startChild(t, "crash", "PLAID_TEST_PATH="+path, fmt.Sprintf("PLAID_TEST_SEED=%d", kill+1))
	first := make(chan struct{})
	lines := make(chan string, 1<<16)
	go func() {
		defer close(lines)
		scan := bufio.NewScanner(out)
		for n := 0; scan.Scan(); n++ {
			if n == 0 {
				close(first)
			}
			lines <- scan.Text()
		}
	}()
	select { // the clock starts with the first change
	case <-first:
	case <-time.After(5 * time.Minute):
		t.Error("the child does not begin")
	}
	time.Sleep(delay)
	require.NoError(t, cmd.Process.Kill())
	var cut error // the end cut a line short
	for line := range lines {
		text, begin := strings.CutPrefix(line, "begin ")
		switch {
		case begin:
			require.NoError(t, cut, line)
			op := &crashOp{}
			if cut = json.Unmarshal([]byte(text), op); cut == nil { // else nothing was done of what the last line says
				st.inFlight = op
			}
		case line == "done":
			st.acked = st.inFlight.after(st.acked)
			st.ops[st.inFlight.Kind]++
			st.built = true
			st.inFlight = nil
		}
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	if runtime.GOOS == "windows" { // which does not tell how a process ended
		require.Empty(t, stderr.String())
		return
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "%v: %s", err, stderr.String())
}

func (st *crashState) check(t *testing.T, path string) {
	t.Helper()
	candidates := [][]version{st.acked}
	if st.inFlight != nil {
		st.cut[st.inFlight.Kind]++
		candidates = append(candidates, st.inFlight.after(st.acked))
	}
	op := st.inFlight
	st.inFlight = nil
	ix, err := Open(context.Background(), path, nil)
	if err != nil {
		require.False(t, st.built, "an acknowledged index is gone: %v", err)
		require.True(t, maybeUnborn(path, err), "%v", err)
		return // the next build must get by with what is there
	}
	s, err := ix.Snapshot()
	require.NoError(t, err)
	require.NoError(t, s.Verify(context.Background()))
	faults := make([]error, len(candidates))
	found := -1
	for i, state := range candidates {
		if i == 0 && !st.built {
			faults[i] = errors.New("a build was in flight")
			continue
		}
		if faults[i] = differs(s, documentsOf(state)); faults[i] == nil {
			found = i
		}
	}
	require.NotEqual(t, -1, found, "neither before nor after %+v: %v", op, faults)
	if found == 1 && op.Kind != "compact" {
		st.landed++
	}
	st.acked, st.built = candidates[found], true
	require.NoError(t, s.Close())
	require.NoError(t, ix.Close())

	ix, err = Open(context.Background(), path, &Options{Write: true}) // sweeps
	require.NoError(t, err)
	require.NoFileExists(t, path+".rewrite.tmp")
	s, err = ix.Snapshot()
	require.NoError(t, err)
	requireIndex(t, s, documentsOf(st.acked))
	digest := snapshotDigest(t, s)
	require.NoError(t, s.Close())
	// Nothing staged is left: the digest covers what readers pass over, too.
	require.NoError(t, ix.file.Discard())
	s, err = ix.Snapshot()
	require.NoError(t, err)
	require.Equal(t, digest, snapshotDigest(t, s))
	st.requireSwept(t, s)
	require.NoError(t, s.Close())
	require.NoError(t, ix.Close())
}

// requireSwept compares the sizes of the parts with what the committed
// documents take.
func (st *crashState) requireSwept(t *testing.T, s *Snapshot) {
	_, sizes, err := s.Inspect(context.Background())
	require.NoError(t, err)
	ids, payload, tokens := 0, 0, 0
	for _, d := range documentsOf(st.acked) {
		ids += len(d.ID) + 4 + 4
		if len(d.Payload) > 0 {
			payload += 4 + len(d.Payload) + 4
		}
	}
	for _, seg := range s.State().Segments {
		tokens += int(seg.Tokens)
	}
	require.EqualValues(t, ids, sizes.IDs)
	require.EqualValues(t, payload, sizes.Payload)
	row := int64(s.Quantizer().RowBytes())
	require.EqualValues(t, int64(tokens)*row+int64(s.Chunks())*int64(len("residuals")+1024), sizes.Residuals)
}
