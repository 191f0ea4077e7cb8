//go:build unix

package store

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/search/keywords"
)

const (
	childVariable = "PLAID_TEST_STORE_CHILD" // the folder
	seedVariable  = "PLAID_TEST_STORE_SEED"
	// killsVariable makes the test longer.
	killsVariable = "PLAID_STORE_KILLS"

	crashClients = 5
	crashIDs     = 12 // of each client
)

func TestMain(m *testing.M) {
	testenv.SetFilesAsOnWindows()
	if dir := os.Getenv(childVariable); dir != "" {
		if err := crashChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

var crashOptions = &Options{
	Growth: collection.Growth{Flat: 60, Until: 400, Factor: 1.25}, Threads: 1, Derive: DeriveKeywords(nil),
	MinWaste: 1, // compacts after every few changes
}

// crashOp is a request of a client to its own documents, or to a collection of its own.
type crashOp struct {
	Client  int
	Kind    string // update, delete, metadata, declare, drop, retrain, compact
	IDs     []string
	Version uint64
}

// crashChild has clients change a collection until the process is killed, and says
// before each request what it is and afterwards that it was answered.
func crashChild(dir string) error {
	ctx := context.Background()
	seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	if err != nil {
		return err
	}
	s, err := Open(ctx, dir, crashOptions)
	if err != nil {
		return err
	}
	c, err := s.Get("docs")
	if errors.Is(err, collection.ErrUnknown) {
		c, err = s.Create(ctx, "docs", collection.Config{Nbits: 4})
	}
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(word string, op crashOp, r collection.Receipt) {
		b, err := json.Marshal(op)
		if err != nil {
			panic(err)
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf("%s %s %d\n", word, b, r.Numbers)
	}
	failed := make(chan error)
	for client := range crashClients {
		go func() {
			rng := rand.New(rand.NewPCG(seed, uint64(client)))
			for n := uint64(1); ; n++ {
				op := crashOp{Client: client, Kind: "update", Version: seed<<20 | n}
				for _, i := range rng.Perm(crashIDs)[:1+rng.IntN(4)] {
					op.IDs = append(op.IDs, fmt.Sprintf("c%d-%d", client, i))
				}
				switch n := rng.IntN(120); {
				case n < 30:
					op.Kind = "delete"
				case n < 50:
					op.Kind = "metadata"
				case n < 51: // others come by growth
					op.Kind = "retrain"
				case n < 52:
					op.Kind = "compact"
				case n < 60:
					op.Kind, op.IDs = []string{"declare", "drop"}[rng.IntN(2)], []string{"own" + strconv.Itoa(client)}
				}
				say("begin", op, collection.Receipt{})
				r, err := op.run(ctx, s, c)
				if v, verr := c.Snapshot(ctx); verr == nil && err == nil && client == 0 { // the keywords are written too
					_, err = v.SearchKeywords(ctx, collection.KeywordQuery{Text: "c0", K: 1})
					err = errors.Join(err, v.Close())
				}
				if err != nil {
					failed <- fmt.Errorf("%+v: %w", op, err)
					return
				}
				say("done", op, r)
			}
		}()
	}
	return <-failed
}

func (op *crashOp) documents() []collection.DocumentInput {
	var docs []collection.DocumentInput
	for _, id := range op.IDs {
		docs = append(docs, randomDoc(id, op.Version))
	}
	return docs
}

func (op *crashOp) run(ctx context.Context, s *Store, c *Collection) (r collection.Receipt, err error) {
	switch op.Kind {
	case "update":
		r, err = c.Update(ctx, op.documents(), collection.UpdateOptions{Replace: true})
	case "delete":
		_, err = c.Delete(ctx, collection.Selection{IDs: op.IDs})
	case "metadata":
		_, err = c.UpdateMetadata(ctx, collection.Selection{IDs: op.IDs}, map[string]json.RawMessage{"touched": strconv.AppendUint(nil, op.Version, 10)})
	case "retrain":
		if _, err = c.Retrain(ctx); err != nil && strings.Contains(err.Error(), "nothing to train on") {
			err = nil
		}
	case "compact":
		_, _, err = c.Compact(ctx)
	case "declare":
		if _, err = s.Create(ctx, op.IDs[0], collection.Config{}); errors.Is(err, collection.ErrExists) {
			err = nil
		}
	case "drop":
		_, err = s.Remove(ctx, op.IDs[0])
	}
	if errors.Is(err, collection.ErrEmpty) {
		err = nil
	}
	return r, err
}

// crashDoc is what is known of a document.
type crashDoc struct {
	version, touched uint64
	ordinal          int // −1: not told
}

// crashState is what one client has been told, its own collection included.
type crashState struct {
	docs map[string]crashDoc
	own  bool
}

func (s crashState) after(op *crashOp, ordinals []int) crashState {
	docs := maps.Clone(s.docs)
	for i, id := range op.IDs {
		switch d, there := docs[id]; {
		case op.Kind == "update":
			docs[id] = crashDoc{op.Version, 0, -1}
			if ordinals != nil {
				docs[id] = crashDoc{op.Version, 0, ordinals[i]}
			}
		case op.Kind == "delete":
			delete(docs, id)
		case op.Kind == "metadata" && there:
			docs[id] = crashDoc{d.version, op.Version, d.ordinal}
		}
	}
	switch op.Kind {
	case "declare":
		s.own = true
	case "drop":
		s.own = false
	}
	return crashState{docs, s.own}
}

// differs says how a store differs from what a client was told.
func (s crashState) differs(st *Store, v *Snapshot, client int) error {
	if own := slices.Contains(st.Names(), "own"+strconv.Itoa(client)); own != s.own {
		return fmt.Errorf("collection of client %d is there: %v", client, own)
	}
	for i := range crashIDs {
		id := fmt.Sprintf("c%d-%d", client, i)
		want, there := s.docs[id]
		if v == nil {
			if there {
				return fmt.Errorf("%s is not there: there is nothing", id)
			}
			continue
		}
		ordinal, is, err := v.snap.Ordinal(id)
		switch {
		case err != nil:
			return err
		case is != there:
			return fmt.Errorf("%s is there: %v", id, is)
		case !is:
			continue
		case want.ordinal >= 0 && int(ordinal) != want.ordinal:
			return fmt.Errorf("%s has moved from %d to %d", id, want.ordinal, ordinal)
		}
		if err := differsDoc(v, id, ordinal, want); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

func differsDoc(v *Snapshot, id string, ordinal uint32, want crashDoc) error {
	b, err := v.snap.Payload(ordinal)
	if err != nil {
		return err
	}
	var m struct{ Version, Touched uint64 }
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	if m.Version != want.version || m.Touched != want.touched {
		return fmt.Errorf("metadata %s, want %+v", b, want)
	}
	x := randomDoc(id, want.version).Vectors
	y, err := v.snap.Vectors(ordinal)
	if err != nil {
		return err
	}
	if len(x) != len(y) {
		return fmt.Errorf("%d values, want %d", len(y), len(x))
	}
	for t := 0; t < len(x); t += testDim {
		xy, xx := 0.0, 0.0
		for j := t; j < t+testDim; j++ {
			xy += float64(x[j]) * float64(y[j])
			xx += float64(x[j]) * float64(x[j])
		}
		if cos := xy / math.Sqrt(xx); cos < .8 {
			return fmt.Errorf("token %d: cosine %.3f with what was given", t/testDim, cos)
		}
	}
	return nil
}

// A process is killed at random moments while clients write, and collections grow. What
// was answered is there; what was not is there wholly or not at all.
func TestKilledWhileClientsWrite(t *testing.T) {
	kills := effort.Cases(4, 15)
	if text := os.Getenv(killsVariable); text != "" {
		var err error
		kills, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	dir := testenv.RAMDir(t) // more transactions in the same time
	states := make([]crashState, crashClients)
	for i := range states {
		states[i].docs = map[string]crashDoc{}
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)) // the moments are random anyway
	answered, pending, landed := map[string]int{}, map[string]int{}, 0
	trained := uint64(0)
	// On a busy machine more kills are needed, with more time before each, for a training to come to its end.
	for kill := 0; kill < kills || trained <= 1 && kill < 60; kill++ {
		within := 300
		if kill >= kills {
			within = 3000
		}
		begun := killOne(t, self, dir, kill, time.Duration(rng.IntN(within))*time.Millisecond, states, answered)
		s, err := Open(t.Context(), dir, &Options{Growth: collection.Growth{Flat: math.MaxInt64, Until: math.MaxInt64}, Derive: DeriveKeywords(nil)})
		require.NoError(t, err)
		var v *Snapshot
		if c, err := s.Get("docs"); err == nil {
			require.NoError(t, c.Err())
			if v, err = c.Snapshot(t.Context()); err != nil {
				require.ErrorIs(t, err, collection.ErrEmpty)
				v = nil
			} else {
				require.NoError(t, c.Verify(t.Context()))
				words, err := v.SearchKeywords(t.Context(), collection.KeywordQuery{Text: "c0 c1 c2 c3 c4", K: 1000})
				require.NoError(t, err)
				require.Len(t, words, v.snap.Len(), "by the first word of their ids")
				trained = max(trained, v.snap.Generation())
			}
			requireTidy(t, c.dir)
		} else {
			require.ErrorIs(t, err, collection.ErrUnknown)
		}
		for client, state := range states {
			err := state.differs(s, v, client)
			if op := begun[client]; op != nil {
				pending[op.Kind]++
				if err != nil {
					states[client] = state.after(op, nil)
					if aerr := states[client].differs(s, v, client); aerr == nil {
						err = nil
						landed++
					}
				}
			}
			require.NoError(t, err, "kill %d, client %d, pending %+v", kill, client, begun[client])
		}
		if v != nil {
			require.NoError(t, v.Close())
		}
		require.NoError(t, s.Close(t.Context()))
	}
	t.Logf("answered %v; killed during %v, of which %d were done; up to generation %d", answered, pending, landed, trained)
	require.NotEmpty(t, pending)
	require.Greater(t, trained, uint64(1), "trainings came in between")
}

// requireTidy: nothing is left beside the index.
func requireTidy(t *testing.T, dir string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		require.Contains(t, []string{configFile, indexFile, keywords.Path(indexFile)}, e.Name())
	}
}

// killOne lets a process work for a while, kills it, and notes what was answered. It
// returns what was not, by client.
func killOne(t *testing.T, self, dir string, kill int, delay time.Duration, states []crashState, answered map[string]int) []*crashOp {
	t.Helper()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+dir, fmt.Sprintf("%s=%d", seedVariable, kill+1))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := make(chan string, 1<<20)
	first := make(chan struct{})
	go func() {
		defer close(lines)
		scan := bufio.NewScanner(out)
		start := 50 // the clock starts when there is something
		if kill%4 == 0 {
			start = 0
		}
		for n := 0; scan.Scan(); n++ {
			if n == start {
				close(first)
			}
			lines <- scan.Text()
		}
	}()
	select {
	case <-first:
	case <-time.After(5 * time.Minute):
		t.Error("the child does not begin")
	}
	time.Sleep(delay) // the moment is random; no result depends on it
	require.NoError(t, cmd.Process.Kill())
	begun := make([]*crashOp, len(states))
	for line := range lines {
		word, rest, _ := strings.Cut(line, " ")
		d := json.NewDecoder(strings.NewReader(rest))
		op := new(crashOp)
		if d.Decode(op) != nil || !strings.HasSuffix(line, "]") {
			continue // cut short by the end: a "begin" of which nothing was done, or a "done" that nobody was told
		}
		if word == "begin" {
			begun[op.Client] = op
			continue
		}
		begun[op.Client] = nil
		answered[op.Kind]++
		var ordinals []int
		for _, s := range strings.Fields(strings.Trim(rest[d.InputOffset():], " []")) {
			o, err := strconv.Atoi(s)
			require.NoError(t, err)
			ordinals = append(ordinals, o)
		}
		states[op.Client] = states[op.Client].after(op, ordinals)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	status, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "%v: %s", err, stderr.String())
	_, err = os.Stat(filepath.Join(dir, lockFile))
	require.NoError(t, err)
	index := filepath.Join(dir, "docs", indexFile)
	testenv.WaitUnlocked(t, filepath.Join(dir, lockFile), index, keywords.Path(index))
	return begun
}
