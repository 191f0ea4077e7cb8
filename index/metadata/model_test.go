package metadata_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/index/metadata"
	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/internal/testing/testenv"
	"github.com/plaid-ir/plaid/search/keywords"
)

var (
	modelSteps = flag.Int("metadata.steps", 0, "how many steps TestModel makes; 0: some hundred")
	modelSeed  = flag.Uint64("metadata.seed", 1, "what TestModel draws its steps by")
)

// model is an index as the payloads that it should have, by id.
type model struct {
	t       *testing.T
	rng     *rand.Rand
	dir     string
	path    string
	ix      *index.Index
	words   *keywords.Index // of the file at path
	backup  string          // one that an incremental backup may go on with
	files   int
	docs    map[string][]byte
	history []string
}

// TestModel makes random changes and holds what conditions select, what facets count and
// what keywords find against a reading of all payloads, with limits so small that
// everything is beyond them now and then.
//
//	TMPDIR=/dev/shm go test ./index/metadata -run 'TestModel$' -metadata.steps 100000 -metadata.seed 7 -timeout 0
func TestModel(t *testing.T) {
	metadata.SmallLimits(t, 3)
	m := &model{t: t, rng: rand.New(rand.NewPCG(*modelSeed, 0)), dir: testenv.RAMDir(t), docs: map[string][]byte{}}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, the last of %d steps:\n%s", *modelSeed, len(m.history), strings.Join(m.history[max(0, len(m.history)-25):], "\n"))
		}
		if m.ix != nil {
			_ = m.ix.Close()
		}
		if m.words != nil {
			_ = m.words.Close()
		}
	}()
	m.build()
	for step := range cmp.Or(*modelSteps, effort.Cases(120, 1500)) {
		m.step()
		m.check()
		if step%16 == 0 {
			m.sound()
		}
		if step%10_000 == 9999 {
			t.Logf("%d steps", step+1)
		}
	}
	m.sound()
	t.Logf("%d steps", len(m.history))
}

// steps are what may happen, and how often.
var steps = []struct {
	weight int
	name   string
	do     func(*model)
}{
	{30, "add", (*model).add}, {20, "set", (*model).setPayload}, {15, "update", (*model).updateWhere},
	{8, "delete", (*model).delete}, {6, "delete where", (*model).deleteWhere}, {3, "compact", (*model).compact},
	{2, "open", (*model).reopen}, {2, "backup", (*model).restore}, {1, "retrain", (*model).retrain},
	{1, "split and merge", (*model).splitAndMerge}, {1, "build", (*model).build},
}

func (m *model) step() {
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	n := m.rng.IntN(total)
	for _, s := range steps {
		if n -= s.weight; n < 0 {
			m.history = append(m.history, s.name)
			s.do(m)
			return
		}
	}
}

// note adds to what is known of the step.
func (m *model) note(format string, args ...any) {
	if len(m.history) > 0 {
		m.history[len(m.history)-1] += " " + fmt.Sprintf(format, args...)
	}
}

func (m *model) file(name string) string {
	m.files++
	return filepath.Join(m.dir, fmt.Sprintf("%d-%s", m.files, name))
}

func (m *model) pick(from ...string) string { return from[m.rng.IntN(len(from))] }

// Values of fields, and operands: around the limit of 3 bytes, and around each other.
var modelValues = []string{
	`0`, `0.0`, `-0.0`, `1`, `1.0`, `2`, `-2.5`, `true`, `null`, `9007199254740993`, `9007199254740992.0`,
	`""`, `"ab"`, `"abc"`, `"abcd"`, `"abce"`, `"abd"`, `"ABC"`, `"1"`, `"0.0"`, `"é"`, `[1]`, `{"b":2}`, `false`, `[1.0,"ab",true,null,1,"ab"]`, `["0.0",[],{"c":"é"},"abcd","abce"]`, `[]`, `"[]"`, `{"b":{"c":{"d":0.0}}}`,
	`["ab"]`, `[null]`, `[false,0]`, `[1,1.0]`, `[1,true]`, `["abcd"]`, `["a text of more than forty bytes, in an array","ab"]`, `[["ab"],"ab"]`,
	`[{"b":"ab"},{"b":["abc",2]},{"b":null},[{"b":7}]]`, `[{"b.b.c":1},{"b":[{"b":{"c":["ab"]}},{"b.c":"abcd"}]}]`, `{"b":[],"b.c":"ab"}`,
}

func (m *model) value() string { return m.pick(modelValues...) }

func (m *model) field() string {
	return m.pick("a", "b", "c", "d", "e", "a", "b", "long", "a.b", "b.b.c", "a.b.c.d", "a.b", "b.b", `"b.b"`)
}

func (m *model) payload() []byte {
	switch m.rng.IntN(12) {
	case 0:
		return nil
	case 1:
		return []byte(m.pick("no object", "[1]", "{}"))
	}
	object := map[string]json.RawMessage{}
	for range m.rng.IntN(4) {
		object[m.pick("a", "b", "c", "d", "e", "B", "long", "a.b", "b.B", "a.b.c")] = json.RawMessage(m.value())
	}
	p, err := json.Marshal(object)
	require.NoError(m.t, err)
	return p
}

func (m *model) ids(most int) []string {
	ids := map[string]bool{}
	for range 1 + m.rng.IntN(most) {
		ids[fmt.Sprint("d", m.rng.IntN(30))] = true
	}
	return slices.Sorted(maps.Keys(ids))
}

func (m *model) condition() *condition.Condition {
	var params []any
	operand := func() string {
		params = append(params, json.RawMessage(m.value()))
		return "?"
	}
	var draw func(depth int) string
	draw = func(depth int) string {
		if depth < 3 && m.rng.IntN(2) == 0 {
			parts := []string{draw(depth + 1)}
			for range 1 + m.rng.IntN(3) {
				parts = append(parts, draw(depth+1))
			}
			return m.pick("", "NOT ") + "(" + strings.Join(parts, m.pick(" AND ", " OR ")) + ")"
		}
		field, not := m.pick("_id", "_subset_", m.field(), m.field(), m.field(), m.field(), m.field()), m.pick("", "", "NOT ")
		switch m.rng.IntN(7) {
		case 0, 1:
			return not + field + m.pick(" = ", " = ", " <> ", " < ", " <= ", " > ", " >= ") + operand()
		case 2:
			list := []string{}
			for range m.rng.IntN(4) {
				list = append(list, operand())
			}
			return field + " " + not + "IN (" + strings.Join(list, ", ") + ")"
		case 3:
			return field + " " + not + "BETWEEN " + operand() + " AND " + operand()
		case 4:
			return field + " " + not + "LIKE '" + m.pick("ab%", "%c%", "_", "abc_", "d1%") + "'"
		case 5:
			return field + " " + not + "REGEXP '" + m.pick("^ab", "[cd]$", "^.$", "0") + "'"
		}
		return field + " IS " + not + "NULL"
	}
	return bind(m.t, draw(0), params...)
}
