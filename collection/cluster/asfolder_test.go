package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// twins are a service over a folder, and the nodes of a cluster, which are asked the same.
type twins struct {
	*testing.T
	r      *rand.Rand
	folder *front
	nodes  []*front
	node   *front // that is asked now
}

const twinAt = "/indices/twin"

// both asks both, and returns the answers.
func (m *twins) both(status int, method, path string, body any) (answers [2]object) {
	m.Helper()
	for i, f := range []*front{m.folder, m.node} {
		var a any
		f.do(status, method, path, body, &a)
		if l, ok := a.(list); ok {
			a = object{"list": l}
		}
		answers[i], _ = a.(object)
	}
	require.Equal(m, m.shape(answers[0]), m.shape(answers[1]), "%s %s %v", method, path, body)
	return answers
}

// shown are the parts of answers that are the same at both, where they are in them.
var shown = strings.Fields("ids deleted passages updated count name config code facets replaced")

// shape is an answer without numbers of documents, and the like.
func (m *twins) shape(a object) object {
	all := object{}
	for key, x := range a {
		all[key] = nil
		if slices.Contains(shown, key) {
			all[key] = x
		}
	}
	return all
}

// words are drawn with the first ones more often.
func (m *twins) words(n int) (text string) {
	for range n {
		text += fmt.Sprintf(" w%c%c", 'a'+rune(m.r.IntN(6)*m.r.IntN(5)), 'a'+rune(m.r.IntN(3)))
	}
	return text[1:]
}

// update adds or replaces documents; some are passages of longer ones.
func (m *twins) update() {
	var docs, metadata list
	add := func(id string, passage object) {
		text := m.words(1 + m.r.IntN(6))
		fields := object{"_id": id, "title": m.words(2), "body": text, "n": m.r.IntN(20)}
		fields["lang"] = []string{"de", "en", "fr"}[m.r.IntN(3)]
		if m.r.IntN(4) == 0 {
			delete(fields, "lang")
		}
		if m.r.IntN(3) == 0 {
			fields["mixed"] = []any{true, 1, 0.5, nil, list{1, 2}, "1"}[m.r.IntN(6)]
		}
		if passage != nil {
			fields["_passage"] = passage
		}
		docs, metadata = append(docs, object{"embeddings": rows(text)}), append(metadata, fields)
	}
	for _, n := range m.r.Perm(30)[:1+m.r.IntN(6)] {
		if n%5 > 0 {
			add(fmt.Sprint("d", n), nil)
			continue
		}
		for i := range 1 + m.r.IntN(3) {
			add(fmt.Sprintf("p%d#%d", n, i), object{"of": fmt.Sprint("p", n), "n": i, "start": i, "end": i + 1})
		}
	}
	m.both(200, "POST", twinAt+"/update", object{"documents": docs, "metadata": metadata})
}

func (m *twins) change() {
	switch m.r.IntN(6) {
	case 0:
		m.both(200, "DELETE", twinAt+"/documents",
			object{"condition": "n = ? OR n = ?", "parameters": list{m.r.IntN(20), m.r.IntN(20)}})
	case 1:
		m.both(200, "DELETE", twinAt+"/documents", object{"ids": list{fmt.Sprint("d", m.r.IntN(30)), "p5", "nobody"}})
	case 2:
		set := object{"title": m.words(3), "n": m.r.IntN(20), "lang": nil}
		m.both(200, "POST", twinAt+"/metadata/update",
			object{"condition": "n < ?", "parameters": list{m.r.IntN(8)}, "updates": set})
	default:
		m.update()
	}
}

// restrict restricts a request at random.
func (m *twins) restrict(body object) object {
	if m.r.IntN(2) == 0 {
		body["filter_condition"], body["filter_parameters"] = "n >= ?", list{m.r.IntN(20)}
	}
	if m.r.IntN(4) == 0 {
		body["ids"] = list{"d1", "d6", "p5", "p10#0", "d7", "d9", "d21", "nobody"}
	}
	return body
}

// ask asks in a random way, and compares.
func (m *twins) ask() {
	params := object{"top_k": 1 + m.r.IntN(40), "mode": "exhaustive"}
	body := m.restrict(object{"params": params, "metadata": m.r.IntN(2) == 0})
	byWords := m.r.IntN(2) == 0
	if byWords {
		body["text_query"] = list{m.words(1 + m.r.IntN(4))}
		if m.r.IntN(2) == 0 {
			body["text_mode"] = "expression"
			body["text_query"] = list{[]string{`"wa wb" `, `wa* `, `+wa wb -wc `, `"wab waa" wca* `}[m.r.IntN(4)] + m.words(1)}
		}
	}
	if byVectors := !byWords || m.r.IntN(2) == 0; byVectors {
		body["queries"] = list{object{"embeddings": rows(m.words(3))}}
		if byWords {
			body["alpha"], body["fusion"] = m.r.Float64(), "relative_score"
		} else if m.r.IntN(3) == 0 {
			body["group"], body["passages"] = "best", 2
		}
	}
	same(m, m.both(200, "POST", twinAt+"/search", body), body)
}

// same compares the results of two searches: scores, and what has them.
func same(t require.TestingT, answers [2]object, body any) {
	var scores [2]list
	var named [2]map[any]any
	for i, a := range answers {
		result := a["results"].(list)[0].(object)
		scores[i] = result["scores"].(list)
		named[i] = map[any]any{}
		for j, id := range result["ids"].(list) {
			named[i][id] = scores[i][j]
		}
	}
	require.Len(t, scores[1], len(scores[0]), "%v", body)
	for j := range scores[0] {
		require.InDelta(t, scores[0][j], scores[1][j], 1e-5, "%v", body)
	}
	for id, score := range named[1] { // equal scores may be in another order, and cut off
		if other, there := named[0][id]; there {
			require.InDelta(t, other, score, 1e-5, "%v of %v", id, body)
		} else {
			require.InDelta(t, scores[1][len(scores[1])-1], score, 1e-5, "%v of %v", id, body)
		}
	}
}

// A service over the shards of a cluster gives the answers of one over a folder, with its scores to
// 1e-5: for random documents, passages and changes, and searches by vectors, words and both, with
// conditions, lists of ids, groups and facets; whichever node is asked.
func TestAsAFolder(t *testing.T) {
	t.Parallel()
	for _, tokenizer := range []string{"unicode61", "trigram"} {
		t.Run(tokenizer, func(t *testing.T) {
			t.Parallel()
			c := three(t, 4, 2)
			m := &twins{T: t, r: rand.New(rand.NewPCG(*seed, uint64(len(tokenizer)))), folder: folder(t)}
			for _, name := range []string{"n0", "n1", "n2"} {
				m.nodes = append(m.nodes, serve(t, c.Node(name), nil, nil))
			}
			m.node = m.nodes[0]
			for range 2 {
				m.both(200, "DELETE", twinAt, nil)
				for _, path := range []string{"", "/stats"} {
					m.both(404, "GET", twinAt+path, nil)
				}
				m.both(404, "POST", twinAt+"/update", object{"documents": list{object{"embeddings": rows("wa")}}})
				config := object{"fts_tokenizer": tokenizer, "nbits": 2, "seed": 7}
				m.both(200, "POST", "/indices", object{"name": "twin", "config": config})
				m.both(409, "POST", "/indices", object{"name": "twin"})
				m.both(404, "POST", twinAt+"/search", object{"queries": list{object{"embeddings": rows("wa")}}})
				narrow := object{"embeddings": [][]float32{{1}}}
				m.both(400, "POST", twinAt+"/update", object{"documents": list{object{"embeddings": rows("wa")}, narrow}})
				m.update()
			}
			for _, bad := range []string{"", ".x", "a/b", "with space"} {
				m.both(400, "POST", "/indices", object{"name": bad})
			}
			m.both(400, "POST", "/indices", object{"name": "x", "config": object{"nbits": 3}})
			rounds := effort.Cases(25, 200)
			if effort.Brief() {
				rounds = 5
			}
			for range rounds {
				m.node = m.nodes[m.r.IntN(3)]
				m.change()
				for range 8 {
					m.ask()
				}
				m.both(200, "POST", twinAt+"/facets", m.restrict(object{"fields": list{"lang", "n"}, "values": 1 + m.r.IntN(9)}))
				answers := m.both(200, "GET", twinAt+"/stats", nil)
				for _, field := range []string{"documents", "passages", "tokens", "metadata", "dim", "nbits"} {
					require.Equal(t, answers[0][field], answers[1][field], field)
				}
			}
			m.both(400, "POST", twinAt+"/search", object{"text_query": list{`"open`}, "text_mode": "expression"})
			m.both(400, "POST", twinAt+"/search", object{"text_query": list{"wa"}, "filter_condition": "nosuch = 1"})
			m.both(400, "POST", twinAt+"/search", object{"queries": list{object{"embeddings": [][]float32{{1, 2}}}}})
			m.both(404, "POST", twinAt+"/explain", object{"query": object{"embeddings": rows("wa")}, "id": "nobody"})
			for _, id := range []string{"d1", "d2", "d3", "d4"} {
				if status, _ := m.folder.ask("GET", twinAt+"/documents?id="+id, "", nil); status == 200 {
					query := object{"embeddings": rows("wa wb")}
					x := m.both(200, "POST", twinAt+"/explain",
						object{"query": query, "id": id, "params": object{"mode": "exhaustive"}})
					require.Equal(t, x[0]["stage"], x[1]["stage"])
					require.Equal(t, x[0]["rank"], x[1]["rank"])
					require.InDelta(t, x[0]["score"], x[1]["score"], 1e-5)
				}
			}
		})
	}
}

// A service over the shards of a cluster refuses conditions in the words of one over a folder.
func TestConditionsAsInAFolder(t *testing.T) {
	c := three(t, 4, 2)
	m := &twins{T: t, r: rand.New(rand.NewPCG(*seed, 1)), folder: folder(t)}
	m.node = serve(t, c.Node("n0"), nil, nil)
	m.both(200, "POST", "/indices", object{"name": "twin", "config": object{"nbits": 2, "seed": 7}})
	for range 4 {
		m.update()
	}
	query := object{"embeddings": rows("wa")}
	metadata := list{object{"_id": "d1", "rare": 1}}
	m.both(200, "POST", twinAt+"/update", object{"documents": list{query}, "metadata": metadata})
	for _, door := range []struct {
		method, path, key string
		body              object
	}{
		{"POST", "/search", "filter_condition", object{"queries": list{query}}},
		{"POST", "/search", "filter_condition", object{"queries": list{query}, "ids": list{"d1", "d2"}}},
		{"POST", "/search", "filter_condition", object{"queries": list{query}, "subset": list{0}}},
		{"POST", "/search", "filter_condition", object{"text_query": list{"wa"}}},
		{"POST", "/search", "filter_condition", object{"text_query": list{"wa"}, "subset": list{0}}},
		{"POST", "/search", "filter_condition", object{"queries": list{query}, "text_query": list{"wa"}, "alpha": 0.5}},
		{"POST", "/search", "filter_condition", object{"queries": list{query}, "feedback": object{"documents": 2}}},
		{"POST", "/explain", "filter_condition", object{"query": query, "id": "d1"}},
		{"POST", "/facets", "filter_condition", object{"fields": list{"lang"}}},
		{"POST", "/facets", "filter_condition", object{"fields": list{"nosuch"}, "ids": list{"d1"}}},
		{"DELETE", "/documents", "condition", object{}},
		{"POST", "/metadata/update", "condition", object{"updates": object{"x": 1}}},
		{"POST", "/metadata/query", "condition", object{}},
		{"POST", "/metadata/get", "condition", object{}},
	} {
		for _, condition := range []string{
			"nosuch = 1", "n = 1 AND (nosuch = 1 OR other = 2)", "n = 1 OR nosuch.x IS NULL", "n =", "n = ?",
			"_passage.of = 'p5' AND nosuch = 1",
		} {
			door.body[door.key] = condition
			answers := m.both(400, door.method, twinAt+door.path, door.body)
			require.Contains(t, answers[0]["message"], "condition: ")
			for _, key := range []string{"message", "details"} {
				require.Equal(t, answers[0][key], answers[1][key], "%s %s: %s", door.method, door.path, condition)
			}
		}
		door.body[door.key] = "_subset_ = 1"
		m.node.do(400, door.method, twinAt+door.path, door.body, nil)
	}
}
