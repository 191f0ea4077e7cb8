package journal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plaid-ir/plaid/internal/testing/objectstest"
	"github.com/plaid-ir/plaid/internal/testing/objectstest/memory"
	"github.com/plaid-ir/plaid/storage/objects"
)

// openLog returns a log in memory.
func openLog() (*Log, *memory.Store) {
	s := memory.New()
	return New(s, "wiki.1", 3, Options{}), s
}

// fill appends n entries after a position.
func fill(t *testing.T, l *Log, at Position, n int) []Position {
	t.Helper()
	var all []Position
	for range n {
		next, err := l.Append(t.Context(), at, []string{fmt.Sprint("batch-", at.Number+1)},
			fmt.Append(nil, "body ", at.Number+1))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, next)
		at = next
	}
	return all
}

// read returns the bodies of the entries after a position.
func read(t *testing.T, l *Log, after Position, known uint64) (bodies []string, at Position, err error) {
	t.Helper()
	at, err = l.Read(t.Context(), after, known, func(e Entry) error {
		bodies = append(bodies, string(e.Body))
		return nil
	})
	return bodies, at, err
}

func checkpoint(t *testing.T, l *Log, generation uint64, at Position) {
	t.Helper()
	if _, err := l.store.Put(t.Context(), l.CheckpointName(generation, at), strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
}

// Entries are read from any position, with and without a number that is known.
func TestLog(t *testing.T) {
	l, _ := openLog()
	if bodies, at, err := read(t, l, Position{}, 0); len(bodies) > 0 || at.Number > 0 || err != nil {
		t.Errorf("an empty log: %q %v %v", bodies, at, err)
	}
	all := fill(t, l, Position{}, 30)
	for from := range 30 {
		var after Position
		if from > 0 {
			after = all[from-1]
			after.Seen = time.Time{} // as a replica has it that was opened
		}
		for _, known := range []uint64{0, uint64(from) + 1, 30, 31, 1000} {
			bodies, at, err := read(t, l, after, known)
			if err != nil || len(bodies) != 30-from || bodies[0] != fmt.Sprint("body ", from+1) ||
				at.Hash != all[29].Hash || at.Seen.IsZero() {
				t.Fatalf("after %d, %d known: %q %v %v", from, known, bodies, at, err)
			}
		}
		if end, err := l.End(t.Context(), after); end != 30 || err != nil {
			t.Fatal(end, err)
		}
	}
	if e, found, err := l.Find(t.Context(), "batch-17", 10, 30); e != 17 || !found || err != nil {
		t.Error(e, found, err)
	}
	if _, found, err := l.Find(t.Context(), "batch-17", 17, 30); found || err != nil {
		t.Error(found, err)
	}
	// The second writer of a number is refused, even with the same content; entries used before an error count.
	if _, err := l.Append(t.Context(), all[28], []string{"batch-30"}, []byte("body 30")); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	stop := errors.New("stop")
	at, err := l.Read(t.Context(), Position{}, 0, func(e Entry) error {
		if e.Number == 3 {
			return stop
		}
		return nil
	})
	if at.Number != 2 || !errors.Is(err, stop) {
		t.Error(at, err)
	}
}

// Batches with long ids are found, and so is what is not among them.
func TestFindLongHeads(t *testing.T) {
	l, _ := openLog()
	var batches []string
	for i := range 400 {
		batches = append(batches, fmt.Sprint(i, strings.Repeat("x", 200)))
	}
	if _, err := l.Append(t.Context(), Position{}, batches, nil); err != nil {
		t.Fatal(err)
	}
	for _, b := range []string{batches[0], batches[399]} {
		if e, found, err := l.Find(t.Context(), b, 0, 1); e != 1 || !found || err != nil {
			t.Error(e, found, err)
		}
	}
	if _, found, err := l.Find(t.Context(), "none", 0, 1); found || err != nil {
		t.Error(found, err)
	}
	for _, bad := range [][]string{{""}, {strings.Repeat("x", maxBatch+1)}} {
		if _, err := l.Append(t.Context(), Position{}, bad, nil); err == nil {
			t.Errorf("%.10q is taken", bad)
		}
	}
}

// A gap, another entry, one that is damaged, and an end that is gone are seen, and never passed over;
// where a checkpoint has what comes after, the log was cut.
func TestForks(t *testing.T) {
	for what, damage := range map[string]func(l *Log, s *memory.Store){
		"gap": func(l *Log, s *memory.Store) { must(t, s.Delete(t.Context(), l.objectName(4))) },
		"swap": func(l *Log, s *memory.Store) {
			s.Set(l.objectName(4), s.Body(l.objectName(5)))
			must(t, s.Delete(t.Context(), l.objectName(5)))
		},
		"end": func(l *Log, s *memory.Store) {
			for n := uint64(3); n <= 6; n++ {
				must(t, s.Delete(t.Context(), l.objectName(n)))
			}
		},
		"bit of a body": func(l *Log, s *memory.Store) { flip(s, l.objectName(4), -20) },
		"bit of a head": func(l *Log, s *memory.Store) { flip(s, l.objectName(4), 30) },
		"bit of a hash": func(l *Log, s *memory.Store) { flip(s, l.objectName(4), -1) },
		"last":          func(l *Log, s *memory.Store) { flip(s, l.objectName(6), -20) },
		"half":          func(l *Log, s *memory.Store) { s.Set(l.objectName(4), s.Body(l.objectName(4))[:90]) },
		"stranger":      func(l *Log, s *memory.Store) { s.Set(l.logPrefix+"x", nil) },
		"other log": func(l *Log, s *memory.Store) {
			other, from := openLog()
			fill(t, other, Position{}, 6)
			s.Set(l.objectName(4), from.Body(l.objectName(4)))
		},
	} {
		t.Run(what, func(t *testing.T) {
			l, s := openLog()
			all := fill(t, l, Position{}, 6)
			damage(l, s)
			for _, known := range []uint64{0, 5, 6} {
				bodies, at, err := read(t, l, all[2], known)
				if !errors.Is(err, ErrFork) || !strings.Contains(err.Error(), "data/wiki.1/log/0003/") {
					t.Errorf("%d known: %q %v %v", known, bodies, at, err)
				}
				for i, b := range bodies {
					if b != fmt.Sprint("body ", 4+i) || what != "last" && what != "stranger" {
						t.Errorf("%q is used", b)
					}
				}
			}
			if what == "stranger" {
				return
			}
			checkpoint(t, l, 1, all[5])
			if what == "end" {
				if _, _, err := read(t, l, all[5], 0); !errors.Is(err, ErrFork) {
					t.Error(err)
				}
			}
			if _, _, err := read(t, l, all[2], 0); !errors.Is(err, ErrBehind) {
				t.Error(err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// flip flips a bit of an object; a place below 0 is counted from the end.
func flip(s *memory.Store, name string, place int) {
	b := s.Body(name)
	b[(place+len(b))%len(b)] ^= 4
	s.Set(name, b)
}

// A log that was cut begins after a position; its newest entry is never removed.
func TestCut(t *testing.T) {
	l, _ := openLog()
	all := fill(t, l, Position{}, 8)
	checkpoint(t, l, 1, all[4])
	if n, err := l.Cut(t.Context(), 5); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := l.Cut(t.Context(), 5); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	for _, after := range []Position{{}, all[1], all[2]} {
		for _, known := range []uint64{0, after.Number + 1} {
			if bodies, _, err := read(t, l, after, known); !errors.Is(err, ErrBehind) || len(bodies) > 0 {
				t.Errorf("after %d: %q %v", after.Number, bodies, err)
			}
		}
		if _, err := l.End(t.Context(), after); !errors.Is(err, ErrBehind) {
			t.Error(err)
		}
	}
	for _, after := range []Position{all[3], all[4], all[7]} { // the entry itself may be gone
		if bodies, at, err := read(t, l, after, 0); err != nil || at.Hash != all[7].Hash ||
			len(bodies) != int(8-after.Number) {
			t.Errorf("after %d: %q %v", after.Number, bodies, err)
		}
	}
	if _, _, err := l.Find(t.Context(), "batch-2", 0, 8); !errors.Is(err, ErrBehind) {
		t.Error(err)
	}
	if n, err := l.Cut(t.Context(), 9); n != 0 || !errors.Is(err, ErrFork) {
		t.Error(n, err)
	}
}

// counting counts the lists of a store.
func counting(s *memory.Store) *int {
	lists := new(int)
	s.SetHook(func(_ context.Context, op, _ string) (before, after error) {
		if op == "list" {
			*lists++
		}
		return nil, nil
	})
	return lists
}

// A writer that slept while entries that it had not read were cut does not acknowledge its entry in the place of one of
// those (I5), and no reader uses it. A writer that is awake makes no list.
func TestSleeper(t *testing.T) {
	for _, gone := range []uint64{3, 4, 6} { // up to which entry the log is cut
		l, s := openLog()
		lists := counting(s)
		all := fill(t, l, Position{}, 2)
		sleeper, reader := all[1], all[1]
		*lists = 0
		all = append(all, fill(t, l, all[1], 5)...)
		if *lists > 0 {
			t.Errorf("%d lists of a writer that is awake", *lists)
		}
		checkpoint(t, l, 1, all[gone])
		if _, err := l.Cut(t.Context(), gone+1); err != nil {
			t.Fatal(err)
		}
		s.AdvanceClock(2 * time.Hour)
		want := ErrUnknown
		if gone == 3 {
			want = ErrTaken
		}
		if at, err := l.Append(t.Context(), sleeper, nil, []byte("late")); !errors.Is(err, want) {
			t.Errorf("cut up to %d: acknowledged at %v: %v", gone, at, err)
		}
		if bodies, _, err := read(t, l, reader, 0); !errors.Is(err, ErrBehind) || len(bodies) > 0 {
			t.Errorf("cut up to %d: %q %v", gone, bodies, err)
		}
		if bodies, _, err := read(t, l, reader, 3); !errors.Is(err, ErrBehind) || len(bodies) > 0 {
			t.Errorf("cut up to %d: %q %v", gone, bodies, err)
		}
		if bodies, _, err := read(t, l, all[gone], 0); err != nil || len(bodies) != int(6-gone) {
			t.Errorf("cut up to %d: %q %v", gone, bodies, err)
		}
	}
	// Nothing was cut: it is a list more, and what came meanwhile is told from what follows.
	l, s := openLog()
	lists := counting(s)
	all := fill(t, l, Position{}, 2)
	s.AdvanceClock(2 * time.Hour)
	*lists = 0
	all = append(all, fill(t, l, all[1], 2)...)
	if *lists != 1 {
		t.Errorf("%d lists", *lists)
	}
	if at, err := l.confirmEntry(t.Context(), all[2], nil); err != nil || at.Number != 3 {
		t.Error(at, err)
	}
}

// Where lists are late, as on a network file system, readers are late, and do not take that for damage.
func TestLateLists(t *testing.T) {
	l, s := openLog()
	all := fill(t, l, Position{}, 6)
	s.ChangeLists(func(all []objects.Entry) []objects.Entry {
		return slices.DeleteFunc(all, func(e objects.Entry) bool { return e.Name > l.objectName(3) })
	})
	for _, c := range []struct{ after, known, want uint64 }{{3, 0, 3}, {3, 5, 5}, {5, 0, 5}, {1, 0, 3}, {1, 4, 4}} {
		if _, at, err := read(t, l, all[c.after-1], c.known); err != nil || at.Hash != all[c.want-1].Hash {
			t.Errorf("after %d, %d known: %d %v", c.after, c.known, at.Number, err)
		}
	}
	if end, err := l.End(t.Context(), all[4]); end != 5 || err != nil {
		t.Error(end, err)
	}
	// An entry that is not found by its name is gone.
	s.ChangeLists(nil)
	if err := errors.Join(s.Delete(t.Context(), l.objectName(6)), s.Delete(t.Context(), l.objectName(5))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(t, l, all[5], 0); !errors.Is(err, ErrFork) {
		t.Error(err)
	}
}

var errLost = errors.New("the answer is lost")

// An entry whose answer is lost is put again, the same bytes, until its outcome is known.
func TestLostAnswers(t *testing.T) {
	l, s := openLog()
	l.sleep = func(context.Context, time.Duration) {}
	all := fill(t, l, Position{}, 2)
	lose, refuse := 2, false
	s.SetHook(func(_ context.Context, op, _ string) (before, after error) {
		switch {
		case op == "put" && refuse:
			refuse = false
			return fmt.Errorf("%w: no space", objects.ErrNotMade), nil
		case op == "put" && lose > 0:
			lose--
			return nil, errLost
		}
		return nil, nil
	})
	at, err := l.Append(t.Context(), all[1], []string{"b"}, []byte("mine"))
	if err != nil || at.Number != 3 {
		t.Fatal(at, err)
	}
	if bodies, end, err := read(t, l, all[1], 0); err != nil || !slices.Equal(bodies, []string{"mine"}) ||
		end.Hash != at.Hash {
		t.Error(bodies, err)
	}
	// Another's entry of the same content is another's.
	lose = 1
	if _, err := l.Append(t.Context(), all[1], []string{"b"}, []byte("mine")); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	// The outcome of a refused put is known, unless an earlier put may have made the entry.
	refuse = true
	if _, err := l.Append(t.Context(), at, nil, nil); !errors.Is(err, objects.ErrNotMade) ||
		errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	lose = 1 << 30
	l.sleep = func(context.Context, time.Duration) { cancel() }
	if _, err := l.Append(ctx, at, []string{"unknown"}, nil); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if e, found, err := l.Find(t.Context(), "unknown", at.Number, at.Number+1); e != 4 || !found || err != nil {
		t.Error(e, found, err)
	}
	if _, err := l.Append(ctx, at, nil, nil); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if log := s.Names(l.logPrefix); len(log) != 4 {
		t.Error(log)
	}
}

// The requests of each step are those of docs/lab/cluster.md.
func TestRequests(t *testing.T) {
	b, address := objectstest.Open(t)
	s, err := objects.Open(address)
	must(t, err)
	var requests []string
	b.Before = func(r *http.Request) objectstest.Fault {
		requests = append(requests, r.Method)
		return objectstest.None
	}
	count := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(requests, want) {
			t.Errorf("%s: %q in place of %q", what, requests, want)
		}
		requests = nil
	}
	l := New(s, "wiki.1", 0, Options{})
	at := fill(t, l, Position{}, 1)[0]
	count("the first change", "PUT", "GET")
	next := fill(t, l, at, 1)[0]
	count("a change", "PUT")
	_, _, err = read(t, l, at, 2)
	must(t, err)
	count("a change of another, after a hint", "GET", "GET")
	_, _, err = read(t, l, next, 0)
	must(t, err)
	count("a poll", "GET")
	_, _, err = l.Find(t.Context(), "batch-2", 1, 2)
	must(t, err)
	count("a batch that is sent again", "GET", "GET", "GET")
}
