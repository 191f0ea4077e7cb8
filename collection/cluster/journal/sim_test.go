package journal

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// The simulation explores every order in which the requests of two writers, a collector and a searcher can
// reach a store, with answers that are lost, puts that come late, and a clock that goes on at any moment.
// The actors run the code of this package. A call of it depends on nothing but its beginning and the answers of the
// store so far: so it runs again, from its beginning, with the answers that are known, up to the first request that
// has none, and that request is remembered. Searchers change nothing: one stands for any number of them.

// tick is a step of the clock, half of the grace: a writer acknowledges at once only in the tick in which its
// position was the end. The time is always now: at a step of the clock, all that was seen before becomes older, until
// its age makes no difference any more. So the clock may go on for ever.
const (
	tick   = time.Hour
	simNow = 10
	simOld = simNow - 2
)

var simBegin = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// older is a time after a step of the clock: that of a checkpoint, for which its age counts.
func older(made uint8) uint8 {
	if made > simOld {
		made--
	}
	return made
}

// stale is one for which it counts only whether it is now.
func stale(made uint8) uint8 { return min(made, simOld) }

func simTime(t uint8) time.Time { return simBegin.Add(time.Duration(t) * tick) }

const (
	simEntries = 6
	simFiles   = 4
	simLate    = 2
)

type (
	// simFile is a checkpoint; its entry is a number of simulation.entries.
	simFile struct{ number, entry, made uint8 }
	simSlot struct{ entry, made uint8 }

	// world is the store, and the state of each actor.
	world struct {
		slots  [simEntries + 1]simSlot // what lies at each number
		files  [simFiles]simFile
		late   [simLate]struct{ number, entry uint8 } // puts that may come yet
		faults uint8                                  // that may happen yet
		truth  [simEntries + 1]uint8                  // the log, whatever of it was cut
		newest uint8
		dead   uint32                           // entries that a writer was told are not in the log
		actors [4]struct{ node, newest uint32 } // newest of the log when a read began
	}

	// simState is an actor between two calls.
	simState struct {
		kind, mode, left uint8
		number, entry    uint8 // its position
		seen             uint8 // now, or 0 for long ago
		kept             uint8 // the last checkpoint of a collector
	}

	simOp uint8

	simRequest struct {
		op            simOp
		number, entry uint8
	}

	simAnswer struct {
		err         uint8 // 1: lost, 2: not found, 3: taken
		entry, made uint8
		bits        uint16
		files       [simFiles]simFile
	}

	// simStep is one of a path: what an actor is told, a tick, or a put that comes late.
	simStep struct {
		who int
		simRequest
		simAnswer
	}

	// simNode is an actor in the middle of a call: what it asks next, or what came of it.
	simNode struct {
		state   simState
		answers []simAnswer
		request simRequest
		next    map[simAnswer]uint32
		aged    uint32 // one more than what it is when time has gone by
		ended   *simOutcome
	}

	simOutcome struct {
		state       simState
		acked, dead uint8
		used        []uint8
		read        bool // to the end
		failed      string
	}

	simEntry struct {
		object         []byte
		number, parent uint8
	}
)

const (
	opIdle simOp = iota
	opPut
	opStamp // the time of the put, which a writer may learn much later
	opGet
	opList
	opCheckpoint
	opFiles
	opDelete
	opDrop
)

const (
	writerA, writerB, collector, searcher = 0, 1, 2, 3
	modeAppend, modeRead, modeLoad        = 0, 1, 2
	modeKeep, modeCut                     = 3, 4
)

var simNames = []string{"writer A", "writer B", "collector", "searcher", "tick", "late put"}

// simOptions are how much is explored, and what is broken.
type simOptions struct {
	appendsA, appendsB, cycles, reads, faults uint8
	begun                                     bool // the log has an entry, and all have read it just now
	coarse                                    bool // fewer steps, see hurries
	noGrace                                   bool // I4: what a checkpoint has is cut at once
	cutNewest                                 bool // I4: the newest entry is cut as well
	noConfirm                                 bool // I5: writers acknowledge whatever the time
	pollByNumber                              bool // I6: an entry that is not found is the end
}

type simulation struct {
	o       simOptions
	entries []simEntry // 0 is none
	byHash  map[Hash]uint8
	nodes   []*simNode
	roots   map[simState]uint32
	seen    map[uint64]struct{}
	path    []simStep
	failed  string
	reached struct{ cut, stale, behind, taken, unknown int }
}

var simSeed = maphash.MakeSeed()

func simulate(o simOptions) *simulation {
	s := &simulation{
		o: o, entries: make([]simEntry, 1), byHash: map[Hash]uint8{{}: 0}, roots: map[simState]uint32{},
		seen: map[uint64]struct{}{},
	}
	w := world{faults: o.faults}
	var actor simState
	if o.begun {
		object, _, _ := encode(1, Hash{}, [16]byte{9}, nil, nil)
		actor.number, actor.entry, actor.seen = 1, s.intern(object), simNow
		s.put(&w, 1, actor.entry)
	}
	for i, left := range []uint8{o.appendsA, o.appendsB, o.cycles, o.reads} {
		actor.kind, actor.left, actor.mode = uint8(i), left, modeRead
		if i <= writerB {
			actor.mode = modeAppend
		}
		w.actors[i].node, w.actors[i].newest = s.root(actor), uint32(w.newest)
	}
	s.explore(w)
	return s
}

func (s *simulation) hash(entry uint8) (h Hash) {
	if entry > 0 {
		e, err := decode(s.entries[entry].object)
		if err != nil {
			panic(err)
		}
		h = e.Hash
	}
	return h
}

func (s *simulation) intern(object []byte) uint8 {
	e, err := decode(object)
	if err != nil {
		panic(err)
	}
	if id, ok := s.byHash[e.Hash]; ok {
		return id
	}
	id := uint8(len(s.entries))
	s.byHash[e.Hash] = id
	s.entries = append(s.entries, simEntry{object, uint8(e.Number), s.byHash[e.parent]})
	return id
}

func (s *simulation) root(st simState) uint32 {
	if id, ok := s.roots[st]; ok {
		return id
	}
	id := s.node(st, nil)
	s.roots[st] = id
	return id
}

func (s *simulation) node(st simState, answers []simAnswer) uint32 {
	n := &simNode{state: st, answers: answers, next: map[simAnswer]uint32{}}
	n.request, n.ended = s.call(st, answers)
	s.nodes = append(s.nodes, n)
	if len(s.nodes) == 1<<31 {
		panic("too many nodes")
	}
	return uint32(len(s.nodes) - 1)
}

// call runs a call of an actor as far as the answers reach.
func (s *simulation) call(st simState, answers []simAnswer) (r simRequest, out *simOutcome) {
	if st.left == 0 {
		return simRequest{}, nil
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case asked:
			r, out = p.simRequest, nil
		default:
			panic(p)
		}
	}()
	store := &scripted{s: s, state: st, answers: answers}
	l := New(store, "c", 0, Options{Grace: 2 * tick})
	l.readAhead, l.token = 1, func() [16]byte { return [16]byte{st.kind, st.left} }
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	slept := 0
	l.sleep = func(context.Context, time.Duration) {
		if slept++; slept == 2 {
			cancel()
		}
	}
	pos := Position{Number: uint64(st.number), Hash: s.hash(st.entry)}
	if st.seen > 0 {
		pos.Seen = simTime(st.seen)
	}
	out = &simOutcome{state: st}
	next := &out.state
	to := func(p Position) {
		next.number, next.entry, next.seen = uint8(p.Number), s.byHash[p.Hash], 0
		if p.Seen.Equal(simTime(simNow)) {
			next.seen = simNow
		}
	}
	switch st.mode {
	case modeAppend:
		if st.number == simEntries {
			next.left = 0
			break
		}
		if s.o.noConfirm {
			l.grace, pos.Seen = 1<<62, simTime(0)
		}
		p, err := l.Append(ctx, pos, nil, nil)
		object, _, _ := encode(pos.Number+1, pos.Hash, l.token(), nil, nil)
		mine := s.intern(object)
		next.mode = modeRead
		switch {
		case err == nil:
			to(p)
			out.acked = mine
			next.left--
			next.mode = modeAppend
		case errors.Is(err, ErrTaken):
			out.dead = mine
			s.reached.taken++
		case errors.Is(err, ErrUnknown):
			next.left-- // it is not tried again
			s.reached.unknown++
		default:
			out.failed = err.Error()
		}
	case modeRead:
		known := uint64(0)
		if st.kind == searcher && st.left%2 == 1 { // a hint, which may be wrong
			known = pos.Number + 1
		}
		p, err := l.Read(ctx, pos, known, func(e Entry) error {
			out.used = append(out.used, s.byHash[e.Hash])
			return nil
		})
		to(p)
		out.read = err == nil
		switch {
		case errors.Is(err, ErrBehind):
			next.mode = modeLoad
			s.reached.behind++
		case errors.Is(err, errLost): // once more
		case err != nil:
			out.failed = err.Error()
		case st.kind == collector:
			next.mode = modeKeep
		case st.kind == searcher:
			next.left--
		default:
			next.mode = modeAppend
		}
	case modeLoad:
		files, err := l.Checkpoints(ctx, 1)
		switch {
		case err != nil:
		case len(files) == 0 || files[len(files)-1].Number <= pos.Number:
			out.failed = fmt.Sprintf("it is behind, at entry %d, and there is no newer checkpoint", pos.Number)
		default:
			to(files[len(files)-1].Position)
			next.mode = modeRead
		}
	case modeKeep:
		next.mode = modeCut
		if pos.Number > uint64(st.kept) {
			next.kept = st.number
			if _, err := store.Put(ctx, l.CheckpointName(1, pos), nil, 0); err != nil {
				next.kept, next.mode = st.kept, modeKeep
			}
		}
	case modeCut:
		next.mode = modeRead
		next.left--
		files, err := l.Checkpoints(ctx, 1)
		now := store.ask(simRequest{op: opStamp}).made
		grace := 2 * tick
		if s.o.noGrace {
			grace = 0
		}
		before, drop := SelectRemovable(files, []uint64{1}, simTime(now), grace)
		if err != nil {
			break
		}
		if s.o.cutNewest && before > 0 {
			before = files[len(files)-1].Number + 1
			for n := uint64(1); n < before; n++ {
				_ = store.Delete(ctx, l.objectName(n))
			}
			break
		}
		if _, err := l.Cut(ctx, before); err != nil && !errors.Is(err, errLost) {
			out.failed = err.Error()
		}
		for _, c := range drop {
			_ = store.Delete(ctx, c.Name)
		}
	}
	return simRequest{}, out
}

func (s *simulation) fail(format string, a ...any) {
	if s.failed == "" {
		s.failed = fmt.Sprintf(format, a...)
		for _, p := range s.path {
			s.failed += fmt.Sprintf("\n%s %v -> %v", simNames[p.who], p.simRequest, p.simAnswer)
		}
	}
}

// No order of requests, and no time at which they come, loses an acknowledged entry, lets a writer deny an entry that
// is in the log, or gives a reader anything but the log as it was at one moment of the read.
func TestSimulation(t *testing.T) {
	effort.SkipBrief(t, "it has one goroutine")
	explored := []simOptions{
		{appendsA: 1, appendsB: 3, cycles: 2},
		{appendsA: 1, appendsB: 3, cycles: 3, begun: true, coarse: true},
		{appendsA: 1, appendsB: 3, cycles: 2, faults: 1, coarse: true},
		{appendsB: 3, cycles: 2, reads: 2, faults: 1, coarse: true},
	}
	if effort.Long() {
		explored = append(explored,
			simOptions{appendsA: 1, appendsB: 3, cycles: 3, faults: 1},
			simOptions{appendsA: 2, appendsB: 3, cycles: 2, faults: 1, coarse: true},
			simOptions{appendsA: 1, appendsB: 4, cycles: 3, begun: true, coarse: true},
			simOptions{appendsA: 1, appendsB: 3, cycles: 2, reads: 2, coarse: true},
			simOptions{appendsA: 1, appendsB: 2, cycles: 2, reads: 1, faults: 1, coarse: true})
	}
	var all simulation
	for _, o := range explored {
		s := simulate(o)
		if s.failed != "" {
			t.Fatalf("%+v: %s", o, s.failed)
		}
		t.Logf("%+v: %d states, %d entries; %+v", o, len(s.seen), len(s.entries)-1, s.reached)
		all.reached.cut += s.reached.cut
		all.reached.stale += s.reached.stale
		all.reached.behind += s.reached.behind
		all.reached.taken += s.reached.taken
		all.reached.unknown += s.reached.unknown
	}
	if r := all.reached; min(r.cut, r.stale, r.behind, r.taken, r.unknown) == 0 {
		t.Errorf("something was never reached: %+v", r)
	}
}

// The simulation finds a fault where an invariant is broken.
func TestSimulationFindsFaults(t *testing.T) {
	effort.SkipBrief(t, "it has one goroutine")
	for want, o := range map[string]simOptions{
		// I4
		"has acknowledged an entry": {appendsA: 1, appendsB: 3, cycles: 3, begun: true, coarse: true, noGrace: true},
		"the newest entry":          {appendsA: 1, appendsB: 3, cycles: 2, cutNewest: true},
		// I5
		"has acknowledged an entry 2 that is not in the log": {
			appendsA: 1, appendsB: 3, cycles: 3, begun: true, coarse: true, noConfirm: true,
		},
		// I6
		"searcher reads up to entry": {appendsA: 1, appendsB: 3, cycles: 2, reads: 2, coarse: true, pollByNumber: true},
	} {
		if s := simulate(o); !strings.Contains(s.failed, want) {
			t.Errorf("%+v: %q, where %q was to be found", o, s.failed, want)
		}
	}
}
