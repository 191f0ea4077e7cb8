package cluster_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/vectors"
)

// value is what a document may be: a version of it with a field n, or not there (version 0).
type value struct{ version, n int }

// effect is what a change makes of a value.
type effect func(value) value

// era is a set of values that a document may have, until a change is acknowledged.
type era struct {
	may   map[value]bool
	until int64 // when that was, in steps of the picture
}

const now = math.MaxInt64

// pictured is a document as a picture has it. One writer changes it.
type pictured struct {
	shard   int // −1: not known
	eras    []era
	pending []effect // of changes whose outcome is not known: they may come at any time
}

// close adds what pending changes may make of the values.
func (d *pictured) close() {
	may := d.eras[len(d.eras)-1].may
	for before := -1; before < len(may); {
		before = len(may)
		for v := range maps.Clone(may) {
			for _, e := range d.pending {
				may[e(v)] = true
			}
		}
	}
}

func (d *pictured) may() map[value]bool { return d.eras[len(d.eras)-1].may }

// become begins the next era.
func (d *pictured) become(step int64, values map[value]bool) {
	d.eras[len(d.eras)-1].until = step
	d.eras = append(d.eras, era{values, now})
	d.close()
}

// apply is an acknowledged change.
func (d *pictured) apply(step int64, e effect) {
	values := map[value]bool{}
	for v := range d.may() {
		values[e(v)] = true
	}
	d.become(step, values)
}

// keep takes an observation: only values that it is true of stay. It reports whether there are any.
func (d *pictured) keep(step int64, is func(value) bool) bool {
	values := map[value]bool{}
	for v := range d.may() {
		if is(v) {
			values[v] = true
		}
	}
	if len(values) == 0 {
		return false
	}
	d.become(step, values)
	return true
}

// picture is what the documents of several writers may be, and what nodes have to know of them.
//
// A node that was told that a change is made has to show it: and so all changes of that shard which
// were acknowledged anywhere before this one was begun. Of others it may be told later.
type picture struct {
	steps atomic.Int64
	mu    sync.Mutex
	knows map[any]map[int]int64 // by process and shard, the step up to which it knows all
}

func newPicture() *picture { return &picture{knows: map[any]map[int]int64{}} }

func (p *picture) step() int64 { return p.steps.Add(1) }

// told says that a process was told of a change of a shard that was begun at a step.
func (p *picture) told(process any, shard int, begun int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.knows[process] == nil {
		p.knows[process] = map[int]int64{}
	}
	p.knows[process][shard] = max(p.knows[process][shard], begun)
}

func (p *picture) known(process any, shard int) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.knows[process][shard]
}

// allowed are the values that a process may show; strict: it has to know the newest ones.
func (p *picture) allowed(d *pictured, known int64) (values map[value]bool, strict bool) {
	values = map[value]bool{}
	strict = true
	for i, e := range d.eras {
		if e.until >= known {
			maps.Copy(values, e.may)
			strict = strict && i == len(d.eras)-1
		}
	}
	return values, strict
}

// share is the documents of one writer.
type share struct {
	p       *picture
	writer  string
	r       *rand.Rand
	docs    map[string]*pictured
	version int
}

const idsOfWriter = 16

func newShare(p *picture, writer string, seed uint64) *share {
	s := &share{p: p, writer: writer,
		r: rand.New(rand.NewPCG(seed, uint64(len(writer))+uint64(writer[len(writer)-1]))), docs: map[string]*pictured{}}
	for i := range idsOfWriter {
		s.docs[s.id(i)] = &pictured{shard: -1, eras: []era{{map[value]bool{{}: true}, now}}}
	}
	return s
}

// id is that of a document; each fourth has passages.
func (s *share) id(i int) string {
	if i%4 == 3 {
		return fmt.Sprintf("%s-p%d", s.writer, i)
	}
	return fmt.Sprintf("%s-d%d", s.writer, i)
}

func hasPassages(id string) bool { return strings.Contains(id, "-p") }

// parts is of how many passages a version of a document is.
func parts(id string, version int) int {
	if hasPassages(id) {
		return 1 + version%3
	}
	return 1
}

func text(id string, version, part int) string {
	return fmt.Sprintf("%s v%d w%d x%d", id, version%17, part, (version*7+part)%31)
}

// documents is a version of a document, with all its passages.
func (s *share) documents(id string, v value) (docs []collection.DocumentInput) {
	for i := range parts(id, v.version) {
		name, metadata := id, fmt.Appendf(nil, `{"w":%q,"v":%d,"n":%d,"part":%d}`, s.writer, v.version, v.n, i)
		if hasPassages(id) {
			p := vectors.Passage{ParentID: id, Number: i, Start: 10 * i, End: 10*i + 9}
			name = p.ID()
			var err error
			if metadata, err = p.Payload(metadata); err != nil {
				panic(err)
			}
		}
		docs = append(docs, document(name, text(id, v.version, i), string(metadata)))
	}
	return docs
}

// seen is what a node shows: of each document its value, and how many parts of it there are.
type seen map[string]*struct {
	value
	parts int
}

// add takes a document or passage that was read.
func (s seen) add(id string, metadata json.RawMessage) error {
	var m struct{ V, N, Part int }
	if err := json.Unmarshal(metadata, &m); err != nil || m.V == 0 {
		return fmt.Errorf("%s has the metadata %q: %v", id, metadata, err)
	}
	whole, _ := vectors.SplitPassageID(id)
	v := value{m.V, m.N}
	if s[whole] == nil {
		s[whole] = &struct {
			value
			parts int
		}{v, 0}
	}
	if s[whole].parts++; s[whole].value != v {
		return fmt.Errorf("%s has parts of %v and of %v", whole, s[whole].value, v)
	}
	return nil
}

// compare compares what a process shows with the picture. known says, by shard, up to which step it
// knew all when it was asked.
func (s *share) compare(shown seen, known func(shard int) int64) error {
	for id := range shown {
		if s.docs[id] == nil {
			return fmt.Errorf("%s was never added", id)
		}
	}
	for id, d := range s.docs {
		var v value
		if got := shown[id]; got != nil {
			if v = got.value; got.parts != parts(id, v.version) {
				return fmt.Errorf("%s has %d parts of version %d", id, got.parts, v.version)
			}
		}
		allowed, strict := s.p.allowed(d, known(d.shard))
		if !allowed[v] {
			return fmt.Errorf("%s in shard %d is %v, it may be one of %v (strictly: %v, %d changes pending)", id,
				d.shard, v, slices.Collect(maps.Keys(allowed)), strict, len(d.pending))
		}
		if strict {
			d.keep(s.p.step(), func(other value) bool { return other == v })
		}
		if len(d.eras) > 512 {
			d.eras = slices.Delete(d.eras, 0, 256)
		}
	}
	return nil
}
