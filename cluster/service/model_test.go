package service_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cluster/client"
	"github.com/plaid-ir/plaid/cluster/clustertest"
	"github.com/plaid-ir/plaid/cluster/operate"
	"github.com/plaid-ir/plaid/cluster/service"
	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/testing/searchtest"
	"github.com/plaid-ir/plaid/vectors"
)

// stored is a document of the picture.
type stored struct {
	number   uint64
	vectors  [][]float32
	metadata object // without _id and _subset_
}

// model is a collection of a cluster behind HTTP, and a picture of it.
type model struct {
	*testing.T
	f     *front
	r     *rand.Rand
	maker *searchtest.Maker
	docs  map[string]*stored
}

const modelAt = "/indices/model"

// Random changes over HTTP, and everything that can be asked after each, compared with a
// picture in memory: on a cluster of three, with batches and stages of growth so small that
// there are many. PLAID_MODEL_STEPS says how many changes.
func TestModel(t *testing.T) {
	steps := 60
	if text := os.Getenv("PLAID_MODEL_STEPS"); text != "" {
		var err error
		steps, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	seed := uint64(1)
	if text := os.Getenv("PLAID_MODEL_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	c := clustertest.New(t, 3)
	m := &model{T: t, r: rand.New(rand.NewPCG(seed, 2)), maker: searchtest.New(seed, dim, 12), docs: map[string]*stored{}}
	m.f = serveAs(t, c, service.Config{
		Client: client.Config{BatchBytes: 600}, Store: c.Store, Create: operate.CreateOptions{Shards: 3, Replicas: 2}, Threads: 1, Dir: t.TempDir(),
		Growth: collection.Growth{Flat: 24, Until: 96, Factor: 1.5},
	})
	m.f.do(200, "POST", "/indices", object{"name": "model", "config": object{"nbits": 4}}, nil)
	m.update(3)
	made := map[string]int{}
	for range steps {
		name := m.step()
		made[name]++
		m.check()
		if m.Failed() {
			break
		}
	}
	t.Log(made)
	_, err := c.Op.Verify(c.Ctx, "model")
	require.NoError(t, err)
}

// step makes a change.
func (m *model) step() string {
	switch n := m.r.IntN(120); {
	case n >= 112:
		of := m.whole()
		m.delete(object{"ids": list{of, "nobody"}}, m.parts(of))
		return "delete passages"
	case n >= 100:
		m.passages(m.whole(), m.r.IntN(5))
		return "passages"
	case n < 40 || len(m.docs) < 3:
		m.update(1 + m.r.IntN(5))
		return "update"
	case n < 50:
		chosen := m.some(1 + m.r.IntN(3))
		m.delete(object{"ids": append(anyIDs(chosen), "nobody")}, chosen)
		return "delete by id"
	case n < 60:
		chosen := m.some(1 + m.r.IntN(2))
		numbers := list{1 << 50}
		for _, id := range chosen {
			numbers = append(numbers, m.docs[id].number)
		}
		m.delete(object{"document_ids": numbers}, chosen)
		return "delete by number"
	case n < 82 && len(m.where(func(d *stored) bool { return d.metadata["n"] != nil })) == 0:
		m.update(3) // the field is not known
		return "update"
	case n < 67:
		v := m.r.IntN(7)
		m.delete(object{"condition": "n = ? AND n < 9", "parameters": list{v}}, m.where(func(d *stored) bool { return d.metadata["n"] == float64(v) }))
		return "delete where"
	case n < 82:
		v := m.r.IntN(7)
		var out struct{ Updated, Passages int }
		chosen := m.where(func(d *stored) bool { n, there := d.metadata["n"]; return there && n.(float64) >= float64(v) })
		set := object{"word": m.word(), "n": float64(m.r.IntN(7))}
		if m.r.IntN(4) == 0 {
			set["lang"] = nil
		}
		m.f.do(200, "POST", modelAt+"/metadata/update", object{"condition": "n >= ?", "parameters": list{v}, "updates": set}, &out)
		require.Equal(m, len(wholes(chosen)), out.Updated)
		require.Equal(m, passagesOf(chosen), out.Passages)
		for _, id := range chosen {
			for k, x := range set {
				if m.docs[id].metadata[k] = x; x == nil {
					delete(m.docs[id].metadata, k)
				}
			}
		}
		return "metadata"
	case n < 88:
		m.f.do(200, "POST", modelAt+"/retrain", nil, nil)
		return "retrain"
	case n < 94:
		m.replace()
		return "backup"
	}
	m.limit()
	return "limit"
}

func anyIDs(ids []string) (all list) {
	for _, id := range ids {
		all = append(all, id)
	}
	return all
}

func (m *model) word() string { return fmt.Sprintf("w%d", m.r.IntN(6)) }

func (m *model) some(n int) []string {
	ids := slices.Sorted(maps.Keys(m.docs))
	m.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:min(n, len(ids))]
}

func (m *model) where(is func(*stored) bool) (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(m.docs)) {
		if is(m.docs[id]) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (m *model) update(n int) {
	m.Helper()
	var bodies, metadata list
	var all []*stored
	named := map[string]bool{}
	for range n {
		d := &stored{metadata: object{"n": float64(m.r.IntN(7)), "word": m.word() + " " + m.word(), "lang": []string{"de", "en"}[m.r.IntN(2)]}}
		for range 1 + m.r.IntN(3) {
			d.vectors = append(d.vectors, m.maker.Tokens(1))
		}
		if m.r.IntN(5) == 0 {
			delete(d.metadata, "n")
		}
		sent := maps.Clone(d.metadata)
		if id := fmt.Sprint("d", m.r.IntN(40)); m.r.IntN(6) > 0 && !named[id] {
			sent["_id"], named[id] = id, true
		}
		bodies, metadata, all = append(bodies, object{"embeddings": d.vectors}), append(metadata, sent), append(all, d)
	}
	var out struct {
		Documents []uint64 `json:"document_ids"`
		IDs       []string `json:"ids"`
	}
	m.f.do(200, "POST", modelAt+"/update", object{"documents": bodies, "metadata": metadata}, &out)
	require.Len(m, out.IDs, n)
	for i, d := range all {
		d.number = out.Documents[i]
		m.docs[out.IDs[i]] = d
	}
}

// whole is the id of a document that may have passages, parts are the documents that it means.
func (m *model) whole() string { return fmt.Sprint("p", m.r.IntN(6)) }

func (m *model) parts(of string) (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(m.docs)) {
		if whole, _ := vectors.SplitPassageID(id); whole == of {
			ids = append(ids, id)
		}
	}
	return ids
}

// passages adds a document of n passages, 0: as a whole, in the place of what there is of it.
func (m *model) passages(of string, n int) {
	m.Helper()
	var bodies, metadata list
	fresh := map[string]*stored{}
	var ids []string
	for i := range max(n, 1) {
		d := &stored{metadata: object{"word": m.word(), "lang": "fr"}, vectors: [][]float32{m.maker.Tokens(1)}}
		id := of
		if n > 0 {
			id = fmt.Sprint(of, "#", i)
			d.metadata["_passage"] = object{"of": of, "n": float64(i), "start": float64(i), "end": float64(i + 1)}
		}
		sent := maps.Clone(d.metadata)
		sent["_id"] = id
		fresh[id], ids = d, append(ids, id)
		bodies, metadata = append(bodies, object{"embeddings": d.vectors}), append(metadata, sent)
	}
	var out struct {
		Documents []uint64 `json:"document_ids"`
	}
	m.f.do(200, "POST", modelAt+"/update", object{"documents": bodies, "metadata": metadata}, &out)
	for _, id := range m.parts(of) {
		delete(m.docs, id)
	}
	for i, id := range ids {
		fresh[id].number = out.Documents[i]
		m.docs[id] = fresh[id]
	}
}

func (m *model) delete(body object, gone []string) {
	m.Helper()
	var out struct{ Deleted, Passages int }
	m.f.do(200, "DELETE", modelAt+"/documents", body, &out)
	before := len(m.wholes())
	for _, id := range gone {
		delete(m.docs, id)
	}
	want := index.Affected{Documents: before - len(m.wholes()), Passages: passagesOf(gone)}
	require.Equal(m, want, index.Affected{Documents: out.Deleted, Passages: out.Passages}, "%v", body)
}

// wholes are the ids of documents that documents and passages belong to; passagesOf counts the
// passages.
func wholes(ids []string) map[string]bool {
	all := map[string]bool{}
	for _, id := range ids {
		whole, _ := vectors.SplitPassageID(id)
		all[whole] = true
	}
	return all
}

func (m *model) wholes() map[string]bool { return wholes(slices.Collect(maps.Keys(m.docs))) }

func passagesOf(ids []string) (n int) {
	for _, id := range ids {
		if whole, _ := vectors.SplitPassageID(id); whole != id {
			n++
		}
	}
	return n
}

// replace goes on with a collection that is made of a backup, sometimes of other numbers.
func (m *model) replace() {
	status, file := m.f.send("GET", modelAt+"/backup", "", nil)
	require.Equal(m, 200, status, "%.300s", file)
	m.f.do(200, "DELETE", modelAt, nil, nil)
	status, text := m.f.send("PUT", modelAt+"/backup", "", file)
	require.Equal(m, 200, status, "%s", text)
	for id, d := range m.contents() {
		m.docs[id].number = uint64(d["_subset_"].(float64))
	}
}

// limit lets fewer documents stay, and looks which: all passages of a document, or none.
func (m *model) limit() {
	most := max(len(m.wholes())-m.r.IntN(3), 1)
	m.f.do(200, "PUT", modelAt+"/config", object{"max_documents": most}, nil)
	before := maps.Clone(m.docs)
	if m.r.IntN(2) == 0 {
		m.update(1)
	} else {
		m.passages(m.whole(), 3)
	}
	there := m.contents()
	left := wholes(slices.Collect(maps.Keys(there)))
	require.Len(m, left, min(most, len(m.wholes())))
	for id, d := range m.docs {
		if before[id] != d {
			require.Contains(m, there, id, "the newest stays")
		}
		whole, _ := vectors.SplitPassageID(id)
		_, ok := there[id]
		require.Equal(m, left[whole], ok, "half of %s is left", whole)
		if !ok {
			delete(m.docs, id)
		}
	}
	m.f.do(200, "PUT", modelAt+"/config", object{"max_documents": nil}, nil)
}
