package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/documents"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/vectors"
)

// door is a way to documents: that of Go programs, of the service, of an index file, of several
// files, of a folder that is watched.
type door interface {
	// changes draws a change of each kind that the door knows.
	changes() map[string]func(*rapid.T, *documents.Model) change
	// parts are those that are stored, in their order; that of several files is the order of ids.
	parts(ctx context.Context) ([]documents.Part, error)
	// count counts documents, and parts that are passages.
	count(ctx context.Context) (docs, passages int, err error)
	// find searches for each word, and returns the ids of parts that were found.
	find(ctx context.Context, words []string) ([][]string, error)
	// grouped searches by vectors for as many documents as there are.
	grouped(ctx context.Context, how string) ([]docHit, error)
	close() error
}

// docHit is a hit of a search for documents.
type docHit struct {
	id       string
	passages []string // ids of parts
}

// change is one of what is stored.
type change struct {
	name  string
	alone bool // nothing else is done at the same time
	once  bool // one other change, and none that is so, is done at the same time
	apply func(*documents.Model) outcome
	do    func(context.Context) (outcome, error)
}

// outcome is what a change says of itself, as far as its door says it.
type outcome struct {
	Refused  bool // an id is taken
	Report   documents.Report
	Affected documents.Affected
	Missing  []string
}

// mostMeets is how many documents are kept where that is limited.
const mostMeets = 3

// names of documents look like those of passages.
var names = []string{
	"page", "page#0", "page#1", "page#1#0", "a#b", "a#b#0", `"x" a longer name than forty bytes, which runs cut off`,
}

// TestDoors compares what each door does with what a picture of documents says, after random
// changes, up to three of them at a time. With 16 processors, these are 200,000 changes:
//
//	PLAID_LONG=1 go test ./cmd/plaid/command -run TestDoors -rapid.checks 500
func TestDoors(t *testing.T) {
	ram := testenv.RAMDir(t)
	model := tinyModel(t, ram)
	doors := map[string]func(t *rapid.T, dir string, p *documents.Model) door{
		"Go":      func(t *rapid.T, dir string, _ *documents.Model) door { return newGoDoor(t, dir, model) },
		"HTTP":    newServiceDoor,
		"file":    newFileDoor,
		"several": newFilesDoor,
		"watch":   func(t *rapid.T, dir string, p *documents.Model) door { return newFolderDoor(t, dir, model) },
	}
	for _, name := range slices.Sorted(maps.Keys(doors)) {
		// Cases of a door run beside each other in the long form.
		for n := range effort.Cases(1, max(1, runtime.GOMAXPROCS(0)/2)) {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				t.Parallel()
				steps := 0
				log := t.Log // rapid forgets the message of what fails once
				rapid.Check(t, func(t *rapid.T) {
					dir, err := os.MkdirTemp(ram, "")
					require.NoError(t, err)
					steps += walkDoor(t, doors[name], dir, log)
					require.NoError(t, os.RemoveAll(dir))
				})
				t.Logf("%d steps", steps)
			})
		}
	}
}

// walkDoor makes some changes, one or several in each step.
func walkDoor(
	t *rapid.T, open func(*rapid.T, string, *documents.Model) door, dir string, log func(...any),
) (steps int) {
	ctx, p := context.Background(), &documents.Model{}
	d := open(t, dir, p)
	defer func() { require.NoError(t, d.close()) }()
	kinds := d.changes()
	draw := func() change {
		kind := rapid.SampledFrom(slices.Sorted(maps.Keys(kinds))).Draw(t, "change")
		c := kinds[kind](t, p)
		c.name = kind
		return c
	}
	var dead []string // words of parts that have gone
	for steps = range rapid.IntRange(1, 25).Draw(t, "steps") {
		before := textsOf(p)
		todo := []change{draw()}
		for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "more") {
			if more := draw(); together(append(todo, more)) {
				todo = append(todo, more)
			}
		}
		if len(todo) > 1 {
			p = doTogether(ctx, t, d, p, todo, log)
		} else {
			got, err := todo[0].do(ctx)
			require.NoError(t, err, todo[0].name)
			require.Equal(t, fmt.Sprintf("%+v", todo[0].apply(p)), fmt.Sprintf("%+v", got), todo[0].name)
			checkParts(ctx, t, d, p)
		}
		after := textsOf(p)
		for text := range before {
			if !after[text] {
				dead = append(dead, strings.Fields(text)...)
			}
		}
		dead = dead[max(0, len(dead)-10):]
		dead = slices.DeleteFunc(dead, func(w string) bool { // texts may come back, as in files
			return slices.ContainsFunc(p.Parts, func(part documents.Part) bool {
				return slices.Contains(strings.Fields(part.Text), w)
			})
		})
		checkDoor(ctx, t, d, p, dead)
	}
	return steps + 1
}

func textsOf(p *documents.Model) map[string]bool {
	all := map[string]bool{}
	for i := range p.Parts {
		all[p.Parts[i].Text] = true
	}
	return all
}

// together reports whether changes may be made at the same time.
func together(changes []change) bool {
	alone, once := 0, 0
	for _, c := range changes {
		if c.alone {
			alone++
		}
		if c.once {
			once++
		}
	}
	return alone == 0 && (once == 0 || once == 1 && len(changes) == 2)
}

// orders are those in which n changes can be made.
func orders(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, order := range orders(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(order), at, n-1))
		}
	}
	return all
}

// doTogether makes changes at the same time, and searches meanwhile. It returns the picture of the
// order in which they were made: there is one that says what they say, and has what is there.
func doTogether(
	ctx context.Context, t *rapid.T, d door, p *documents.Model, todo []change, log func(...any),
) *documents.Model {
	got, errs := make([]outcome, len(todo)), make([]error, len(todo)+1)
	var kinds []string
	var wg sync.WaitGroup
	for i, c := range todo {
		kinds = append(kinds, c.name)
		wg.Go(func() { got[i], errs[i] = c.do(ctx) })
	}
	what := strings.Join(kinds, ", ")
	wg.Go(func() {
		hits, err := d.grouped(ctx, "best")
		seen := map[string]bool{}
		for _, h := range hits {
			if seen[h.id] {
				err = errors.Join(err, fmt.Errorf("a grouped search has found %q twice", h.id))
			}
			seen[h.id] = true
		}
		errs[len(todo)] = err
	})
	wg.Wait()
	require.NoError(t, errors.Join(errs...), what)
	parts, err := d.parts(ctx)
	require.NoError(t, err, what)
	// Of additions that share a transaction one counts what is evicted, and what one replaces would
	// have been evicted for another if they had come one by one.
	said := func(o outcome, most int) string {
		if o.Report.Evicted = 0; most > 0 {
			o.Report.Replaced = 0
		}
		return fmt.Sprintf("%+v", o)
	}
	var tried strings.Builder
	for _, order := range orders(len(todo)) {
		after, want := p.Clone(), make([]outcome, len(todo))
		for _, i := range order {
			want[i] = todo[i].apply(after)
		}
		same := slices.Equal(arranged(d, after.Parts), parts)
		for i := range want {
			same = same && said(want[i], after.MaxDocuments) == said(got[i], after.MaxDocuments)
		}
		if same {
			return after
		}
		fmt.Fprintf(&tried, "\n%v: %v, %+v", order, arranged(d, after.Parts), want)
	}
	log(fmt.Sprintf("%s at a time\nbefore: %v\nafter: %v, %+v\nnone of these: %s",
		what, p.Parts, parts, got, tried.String()))
	require.Fail(t, what+" at a time")
	return nil
}

// arranged are parts in the order of a door.
func arranged(d door, parts []documents.Part) []documents.Part {
	parts = slices.Clone(parts)
	if _, sorted := d.(interface{ sorted() }); sorted {
		slices.SortFunc(parts, func(a, b documents.Part) int { return strings.Compare(a.ID, b.ID) })
	}
	return parts
}

func checkParts(ctx context.Context, t *rapid.T, d door, p *documents.Model) {
	got, err := d.parts(ctx)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(arranged(d, p.Parts)), fmt.Sprint(got))
}

// checkDoor looks at what a door counts and finds.
func checkDoor(ctx context.Context, t *rapid.T, d door, p *documents.Model, dead []string) {
	docs, passages, err := d.count(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{len(p.Documents()), p.Passages()}, []int{docs, passages})
	// Each part is found by its first word, and nothing else is.
	var ask []string
	var want [][]string
	for i := range p.Parts {
		if words := strings.Fields(p.Parts[i].Text); len(words) > 0 {
			ask, want = append(ask, words[0]), append(want, []string{p.Parts[i].ID})
		}
	}
	for _, w := range dead {
		ask, want = append(ask, w), append(want, nil)
	}
	if len(ask) > 0 {
		got, err := d.find(ctx, ask)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(want), fmt.Sprint(got), "%v", ask)
	}
	// A search for documents finds each of them once, with passages of its own.
	how := rapid.SampledFrom([]string{"best", "sum", "maxsim"}).Draw(t, "group")
	groups, err := d.grouped(ctx, how)
	require.NoError(t, err)
	var ids []string
	for _, g := range groups {
		ids = append(ids, g.id)
		of, seen := map[string]bool{}, map[string]bool{}
		for i := range p.Parts {
			of[p.Parts[i].ID] = p.Parts[i].Document() == g.id
		}
		require.NotEmpty(t, g.passages)
		for _, id := range g.passages {
			require.True(t, of[id] && !seen[id], "%s: passages %q", g.id, g.passages)
			seen[id] = true
		}
	}
	require.ElementsMatch(t, p.Documents(), ids, "documents by %s", how)
}

// texts makes texts of words that occur once in all.
type texts struct{ words int }

func (x *texts) draw(t *rapid.T) string {
	all := make([]string, rapid.SampledFrom([]int{1, 2, 4, 5, 8, 11}).Draw(t, "words"))
	for i := range all {
		x.words++
		all[i] = fmt.Sprintf("w%dx", x.words)
	}
	return strings.Join(all, " ")
}

// selection is what a change is to be done to, in one of the ways that doors have.
type selection struct {
	ids   []string
	where string
	args  []any
	in    func(*documents.Model) (chosen chooser, missing []string)
}

// chooser tells of each part whether it is chosen.
type chooser = func(*documents.Part) bool

// drawIDs chooses by ids; some stand for nothing.
func drawIDs(t *rapid.T, names []string) selection {
	ids := []string{rapid.SampledFrom(names).Draw(t, "id")}
	if other := rapid.SampledFrom(names).Draw(t, "other id"); other != ids[0] {
		ids = append(ids, other)
	}
	return selection{ids: ids, in: func(p *documents.Model) (chooser, []string) { return p.Select(ids...) }}
}

// drawWhere chooses by a condition.
func drawWhere(t *rapid.T, p *documents.Model, names []string) selection {
	by := func(where string, arg any, chosen chooser) selection {
		return selection{
			where: where, args: slices.Repeat([]any{arg}, strings.Count(where, "?")),
			in: func(*documents.Model) (chooser, []string) { return chosen, nil },
		}
	}
	id := rapid.SampledFrom(names).Draw(t, "where")
	switch rapid.IntRange(0, 3).Draw(t, "condition") {
	case 0:
		return by("_id = ? OR _passage.of = ?", id, func(part *documents.Part) bool { return part.ID == id || part.Of == id })
	case 1:
		n := rapid.IntRange(1, 10).Draw(t, "n")
		return by("n = ?", n, func(part *documents.Part) bool { return part.N == n })
	case 2:
		return by("_passage.n = ?", 1, func(part *documents.Part) bool {
			return part.Of != "" && strings.HasSuffix(part.ID, "#1")
		})
	}
	if len(p.Parts) > 0 {
		id = rapid.SampledFrom(p.Parts).Draw(t, "part").ID
	}
	return by("_id = ?", id, func(part *documents.Part) bool { return part.ID == id })
}

func (s *selection) condition() (*condition.Condition, error) {
	e, err := condition.Parse(s.where)
	if err != nil {
		return nil, err
	}
	return e.Bind(s.args...)
}

// deletes is what deleting a selection says.
func (s *selection) deletes(p *documents.Model) outcome {
	chosen, missing := s.in(p)
	return outcome{Affected: p.Delete(chosen), Missing: missing}
}

// sets is what setting N of a selection says.
func (s *selection) sets(p *documents.Model, n int) outcome {
	chosen, missing := s.in(p)
	return outcome{Affected: p.Set(chosen, n), Missing: missing}
}

// affected is the outcome of a change of a selection. A field that no document has is no error
// here, since a condition over it is true of none.
func affected(n index.Affected, missing []string, err error) (outcome, error) {
	if errors.Is(err, condition.ErrUnknownField) {
		err = nil
	}
	return outcome{Affected: documents.Affected(n), Missing: missing}, err
}

// taken is an outcome, where an error says that an id is taken.
func taken(o outcome, err error) (outcome, error) {
	if errors.Is(err, index.ErrDuplicateID) || errors.Is(err, index.ErrPassages) {
		return outcome{Refused: true}, nil
	}
	return o, err
}

// nothing is a change of how documents are stored.
func nothing(alone bool, do func(context.Context) error) func(*rapid.T, *documents.Model) change {
	return func(*rapid.T, *documents.Model) change {
		return change{
			alone: alone, apply: func(*documents.Model) outcome { return outcome{} },
			do: func(ctx context.Context) (outcome, error) { return outcome{}, do(ctx) },
		}
	}
}

// partOf reads what is stored.
func partOf(id string, payload []byte) (documents.Part, error) {
	part := documents.Part{ID: id}
	passage, err := vectors.PassageFromPayload(id, payload)
	if passage != nil {
		part.Of = passage.ParentID
	}
	if len(payload) > 0 {
		err = errors.Join(err, json.Unmarshal(payload, &part))
	}
	return part, err
}

// partsOf are what snapshots have, in order.
func partsOf(ctx context.Context, snaps ...*index.Snapshot) (parts []documents.Part, err error) {
	for _, s := range snaps {
		if err := s.Verify(ctx); err != nil {
			return nil, err
		}
		for o := range s.State().Docs {
			if !s.Live(o) {
				continue
			}
			payload, err := s.Payload(o)
			if err != nil {
				return nil, err
			}
			part, err := partOf(s.ID(o), payload)
			if err != nil {
				return nil, err
			}
			if s.Passages().Contains(o) != (part.Of != "") || s.DocumentOf(o) != part.Document() {
				return nil, fmt.Errorf("%s is a part of %q, and its payload says %q", part.ID, s.DocumentOf(o), part.Of)
			}
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// partTexts are the parts that a text is stored in.
func partTexts(id string, n int, text string, how encode.Splitting) (arrivals []documents.Arrival, err error) {
	ctx := context.Background()
	for t, err := range encode.Passages(ctx, encode.Texts(encode.Text{ID: id, Text: text}), how) {
		if err != nil {
			return nil, err
		}
		part := documents.Part{ID: t.ID, N: n, Text: t.Text}
		if t.ID != id {
			part.Of = id
		}
		arrivals = append(arrivals, documents.Arrival{Part: part})
	}
	return arrivals, nil
}

const tinyDim = 4

// vectorsOf are the vectors of a text, one a word.
func vectorsOf(text string, dim int) (v []float32) {
	for _, w := range strings.Fields(cmp.Or(text, "nothing")) {
		h := fnv.New64a()
		_, _ = h.Write([]byte(w))
		x := h.Sum64()
		for range dim {
			x = x*6364136223846793005 + 1442695040888963407
			v = append(v, float32(x>>40)/(1<<23)-1)
		}
	}
	return v
}
