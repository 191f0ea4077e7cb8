package journal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/plaid-ir/plaid/storage/objects"
)

// scripted is the store of a call: it gives the answers that are known, and ends the call at the first
// request that has none.
type scripted struct {
	objects.Store // nil: the other methods are not used
	s             *simulation
	state         simState
	answers       []simAnswer
}

type asked struct{ simRequest }

func (c *scripted) ask(r simRequest) simAnswer {
	if len(c.answers) == 0 {
		panic(asked{r})
	}
	a := c.answers[0]
	c.answers = c.answers[1:]
	return a
}

func (a simAnswer) error() error {
	return []error{nil, errLost, objects.ErrNotFound, objects.ErrExists}[a.err]
}

func numberIn(name string) uint8 {
	n, _ := hexNumber(name[strings.LastIndexByte(name, '/')+1:])
	return uint8(n)
}

func (c *scripted) Put(_ context.Context, name string, r io.Reader, _ int64) (time.Time, error) {
	if f, ok := ParseCheckpoint(objects.Entry{Name: name}); ok {
		a := c.ask(simRequest{opCheckpoint, uint8(f.Number), c.s.byHash[f.Hash]})
		return simTime(a.made), a.error()
	}
	object, _ := io.ReadAll(r)
	a := c.ask(simRequest{opPut, numberIn(name), c.s.intern(object)})
	if a.err != 0 {
		return time.Time{}, a.error()
	}
	return simTime(c.ask(simRequest{op: opStamp}).made), nil
}

func (c *scripted) Get(_ context.Context, name string, _, _ int64) (io.ReadCloser, objects.Entry, error) {
	a := c.ask(simRequest{opGet, numberIn(name), 0})
	if a.err != 0 {
		return nil, objects.Entry{}, a.error()
	}
	b := c.s.entries[a.entry].object
	return io.NopCloser(bytes.NewReader(b)), objects.Entry{Name: name, Size: int64(len(b)), Made: simTime(a.made)}, nil
}

func (c *scripted) List(ctx context.Context, prefix, after string, limit int) (listed []objects.Entry, err error) {
	if strings.Contains(prefix, "/files/") {
		a := c.ask(simRequest{op: opFiles})
		for _, f := range a.files {
			if f.number > 0 {
				l := &Log{filesPrefix: prefix[:strings.LastIndexByte(prefix, '/')+1]}
				name := l.CheckpointName(1, Position{Number: uint64(f.number), Hash: c.s.hash(f.entry)})
				listed = append(listed, objects.Entry{Name: name, Made: simTime(f.made)})
			}
		}
		return listed, a.error()
	}
	from := numberIn(after)
	if c.s.o.pollByNumber && c.state.kind == searcher { // without lists: up to the first entry that is not there
		for n := max(from+1, c.state.number); n <= simEntries; n++ {
			if a := c.ask(simRequest{opGet, n, 0}); a.err != 0 && n > c.state.number {
				break
			}
			listed = append(listed, objects.Entry{Name: fmt.Sprintf("%s%016x", prefix, n)})
		}
		return listed, nil
	}
	a := c.ask(simRequest{op: opList})
	for n := from + 1; n <= simEntries; n++ {
		if a.bits>>n&1 != 0 && (limit == 0 || len(listed) < limit) {
			listed = append(listed, objects.Entry{Name: fmt.Sprintf("%s%016x", prefix, n), Size: 1})
		}
	}
	return listed, a.error()
}

func (c *scripted) Delete(_ context.Context, name string) error {
	if f, ok := ParseCheckpoint(objects.Entry{Name: name}); ok {
		return c.ask(simRequest{opDrop, uint8(f.Number), 0}).error()
	}
	return c.ask(simRequest{opDelete, numberIn(name), 0}).error()
}
