//go:build linux && (amd64 || arm64)

package reliability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"
	_ "unsafe" // go:linkname

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
	"github.com/plaid-ir/plaid/vectors"
)

// The process with one long-lived handle reads a handleJob from this variable.
const handleVariable = "PLAID_RELIABILITY_HANDLE"

type handleJob struct {
	Path string
	Dim  int
	// Look reads the index through the handle after each change, and snapshots
	// that are held meanwhile.
	Look bool
	// Small makes many transactions of little data.
	Small bool
}

// With the values of the package a change of small documents is one
// transaction.
//
//go:linkname chunkBytes github.com/plaid-ir/plaid/index.chunkBytes
var chunkBytes int

//go:linkname stageBytes github.com/plaid-ir/plaid/index.stageBytes
var stageBytes int

// change is a step of the process; its effect follows from what was there.
type change struct {
	kind    string
	ids     []string
	version int
}

// changes are the fourteen steps.
var changes = []change{
	{"delete", []string{"d1", "d2"}, 0},
	{"add", []string{"n10", "n11", "n12"}, 1},
	{"replace", []string{"d3", "d4", "n11"}, 2},
	{"delete", []string{"d5", "n10"}, 0},
	{"defaults", nil, 0},
	{"compact", nil, 0},
	{"add", []string{"n20"}, 3},
	{"replace", []string{"n20", "d6"}, 4},
	{"delete", []string{"d7"}, 0},
	{"add", []string{"n30", "n31", "n32", "n33", "n34", "n35"}, 5},
	{"compact", nil, 0},
	{"delete", []string{"n31", "n32", "nowhere"}, 0},
	{"add", []string{"n40", "d1"}, 6},
	{"replace", []string{"d1", "n40", "d8"}, 7},
}

// after is what an index holds after a change, given what is added.
func (c change) after(before *state, added content) *state {
	now := &state{docs: maps.Clone(before.docs), defaults: before.defaults || c.kind == "defaults"}
	for _, id := range c.ids {
		if c.kind == "delete" {
			delete(now.docs, id)
		} else {
			now.docs[id] = added[id]
		}
	}
	return now
}

// possible tells whether a change can be made, after others that failed.
func (c change) possible(before *state) bool {
	if c.kind != "add" {
		return true
	}
	for _, id := range c.ids {
		if _, there := before.docs[id]; there {
			return false
		}
	}
	return true
}

func (c change) run(ix *index.Index, dim int) error {
	ctx := context.Background()
	var docs []vectors.Document
	for _, id := range c.ids {
		docs = append(docs, document(id, c.version, dim))
	}
	var err error
	switch c.kind {
	case "delete":
		_, _, err = ix.Delete(ctx, c.ids)
	case "add", "replace":
		_, err = ix.Add(ctx, source(dim, docs), &index.AddOptions{Replace: c.kind == "replace", Threads: 1})
	case "compact":
		err = ix.Compact(ctx, nil)
	case "defaults":
		err = ix.SetDefaults(someDefaults())
	}
	return err
}

func someDefaults() *storage.Defaults {
	return &storage.Defaults{Docs: 1, Tokens: 1, Time: time.Unix(1, 0), Classes: []storage.DefaultClass{{K: 10, Probes: 3, Approx: 50, Exact: 20}}}
}

// handleLine is what the process prints after each change.
type handleLine struct {
	Step     int // -1: opening
	Error    string
	Unknown  bool
	Reopened bool
	Fault    string // what reading through the handle found
	Docs     content
	Defaults bool
}

func handleProcess() int {
	var job handleJob
	if err := json.Unmarshal([]byte(os.Getenv(handleVariable)), &job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if job.Small {
		chunkBytes, stageBytes = 300, 500
	}
	if err := job.run(); err != nil {
		job.print(handleLine{Step: -1, Error: err.Error()})
		return 1
	}
	return 0
}

func (j *handleJob) print(l handleLine) {
	b, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write(append(b, '\n')) // in one call: it is noted in order with the others
}

func (j *handleJob) open() (*index.Index, error) {
	return index.Open(context.Background(), j.Path, &index.Options{Write: true, LockTimeout: lockTimeout})
}

func (j *handleJob) run() error {
	ix, err := j.open()
	if err != nil {
		return err
	}
	defer func() { _ = ix.Close() }()
	var held *index.Snapshot
	var heldState *state
	defer func() {
		if held != nil {
			_ = held.Close()
		}
	}()
	for n, c := range changes {
		err := c.run(ix, j.Dim)
		line := handleLine{Step: n}
		if err != nil {
			line.Error = err.Error()
			line.Unknown = errors.Is(err, storage.ErrOutcomeUnknown)
		}
		if line.Unknown { // as the message asks for
			if held != nil {
				_ = held.Close()
				held = nil
			}
			_ = ix.Close()
			again, err := j.open()
			if err != nil {
				line.Fault = "opening again: " + err.Error()
				j.print(line)
				return fmt.Errorf("opening again: %w", err)
			}
			ix, line.Reopened = again, true
		}
		if j.Look {
			s, err := stateOf(ix)
			if s != nil {
				line.Docs, line.Defaults = s.docs, s.defaults
			}
			if held != nil {
				was, herr := stateAt(held)
				if herr == nil && !was.equal(heldState) {
					herr = errors.New("shows something else now")
				}
				if herr != nil {
					err = errors.Join(err, fmt.Errorf("a snapshot that is held: %w", herr))
				}
			}
			if n%4 == 0 && err == nil { // a reader stays for some changes
				if held != nil {
					_ = held.Close()
				}
				heldState = s
				held, err = ix.Snapshot()
			}
			if err != nil {
				line.Fault = err.Error()
			}
		}
		j.print(line)
	}
	return nil
}

func handleLines(printed []byte) ([]handleLine, error) {
	var lines []handleLine
	for text := range strings.Lines(string(printed)) {
		var l handleLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return lines, fmt.Errorf("%q: %w", text, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}
