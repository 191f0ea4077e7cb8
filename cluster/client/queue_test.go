package client

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/plaid-ir/plaid/cluster/wire"
	"github.com/plaid-ir/plaid/vectors"
)

// What waits at a time goes into one entry, but for what has to keep an order, does not fit,
// or could not be read by all nodes.
func TestEntriesOfAQueue(t *testing.T) {
	on := func(ids ...string) *waiting {
		b := &wire.Batch{Op: wire.Delete}
		for _, id := range ids {
			b.Documents = append(b.Documents, vectors.Document{ID: id})
		}
		return &waiting{batch: b, msg: make([]byte, 100), ctx: context.Background()}
	}
	whole := &waiting{batch: &wire.Batch{Op: wire.Set, Choice: []byte("{}")}, msg: make([]byte, 100)}
	large := on("large")
	large.msg = make([]byte, 5000)
	var many []*waiting
	for i := range maxGroup + 5 {
		w := on(fmt.Sprint(i))
		w.msg = nil
		many = append(many, w)
	}
	for name, c := range map[string]struct {
		waits []*waiting
		want  []int
	}{
		"nothing":           {nil, nil},
		"together":          {[]*waiting{on("a"), on("b", "c"), on("d")}, []int{3}},
		"the same document": {[]*waiting{on("a"), on("b"), on("c", "a"), on("c")}, []int{2, 1, 1}},
		"a whole shard":     {[]*waiting{on("a"), whole, on("b"), on("c")}, []int{1, 1, 2}},
		"too large":         {[]*waiting{large, on("a"), on("b"), large}, []int{1, 2, 1}},
		"many":              {many, []int{maxGroup, 5}},
	} {
		q := &queue{f: &Client{c: Config{BatchBytes: 4096}}, waiting: c.waits, writes: true}
		if name == "many" {
			q.f.c.BatchBytes = 1 << 20
		}
		var got []int
		for {
			group, _ := q.next()
			if len(group) == 0 {
				break
			}
			got = append(got, len(group))
		}
		if !reflect.DeepEqual(got, c.want) || q.writes {
			t.Errorf("%s: %v, wanted %v", name, got, c.want)
		}
	}
}
