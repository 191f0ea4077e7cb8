package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/search"
	"github.com/plaid-ir/plaid/vectors"
)

func exampleQuery() *Query {
	return &Query{
		ID: ID{1, 2, 3}, Collection: "wiki", Generation: 7, Left: 250 * time.Millisecond, Shards: []ShardAt{{0, 5}, {3, 1 << 40}},
		Dim: 2, Vectors: []float32{1, 0, 0.5, -0.5}, Weights: []float32{1, 2}, K: 100, Keep: 44, Mode: search.Exhaustive, Payload: true,
		Filter: []byte(`{"ids":["a"]}`),
	}
}

func exampleAnswer() *Answer {
	a := &Answer{
		ID: ID{9}, Generation: 7, Queued: time.Millisecond, Worked: 2 * time.Millisecond, Waiting: 1, Shards: []ShardState{{3, 12, 1000}}, More: true,
		Hits: []Hit{{3, search.Hit{ID: "d1", Ordinal: 17, Score: 3.5, Payload: search.Payload("{}")}}, {3, search.Hit{ID: "d2", Ordinal: 18, Score: 3.5}}},
	}
	a.Stats.Queries, a.Stats.Plans, a.Stats.ExactDocs = 1, map[string]int{"scan": 1}, 2
	return a
}

func exampleBatch() *Batch {
	return &Batch{ID: ID{4}, Op: Put, Shard: 2, Dim: 2, Reply: "in.box", Model: []byte(`{"name":"m"}`), Documents: []vectors.Document{
		{ID: "a", Tokens: []float32{1, 0}, Payload: []byte("p")}, {ID: "empty"}, {ID: "no payload", Tokens: []float32{0, 1, 1, 0}},
	}}
}

// The bytes of version 1: a change of them needs a new version.
func TestGolden(t *testing.T) {
	q, err := exampleQuery().Encode()
	if err != nil {
		t.Fatal(err)
	}
	a, err := exampleAnswer().Encode()
	if err != nil {
		t.Fatal(err)
	}
	b, err := exampleBatch().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{"query": {q, goldenQuery}, "answer": {a, goldenAnswer}, "batch": {b, goldenBatch}, "group": {exampleGroup(t), goldenGroup}} {
		if got := hex.EncodeToString(c.got); got != strings.Join(strings.Fields(c.want), "") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	ids := rapid.StringN(0, 20, 40)
	floats := rapid.SliceOfN(rapid.Float32(), 6, 6)
	some := rapid.SliceOfN(rapid.Byte(), 1, 30)
	maybe := func(t *rapid.T, name string) []byte {
		if rapid.Bool().Draw(t, "has "+name) {
			return some.Draw(t, name)
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) {
		q := &Query{
			ID: NewID(), Collection: ids.Draw(t, "collection"), Generation: rapid.Uint64().Draw(t, "generation"),
			Left: time.Duration(rapid.Uint32().Draw(t, "left")) * time.Microsecond, Dim: 3, Vectors: floats.Draw(t, "vectors"),
			K: rapid.IntRange(0, math.MaxInt32).Draw(t, "k"), Keep: rapid.IntRange(0, 100).Draw(t, "keep"), Mode: search.Mode(rapid.IntRange(0, 2).Draw(t, "mode")),
			Probes: 3, Approx: 4, Exact: 5, Derive: rapid.Bool().Draw(t, "derive"), Payload: rapid.Bool().Draw(t, "payload"), AllowMissing: rapid.Bool().Draw(t, "missing"),
			Shards: []ShardAt{}, Model: maybe(t, "model"), Filter: maybe(t, "filter"), Candidates: maybe(t, "candidates"),
		}
		for range rapid.IntRange(0, 4).Draw(t, "shards") {
			q.Shards = append(q.Shards, ShardAt{rapid.IntRange(0, MaxShards).Draw(t, "shard"), rapid.Uint64().Draw(t, "applied")})
		}
		if rapid.Bool().Draw(t, "weighted") {
			q.Weights = []float32{1, 2}
		}
		msg, err := q.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeQuery(msg)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(q, back) {
			t.Fatalf("query\n%+v\n%+v", q, back)
		}
		at := rapid.IntRange(0, len(msg)-1).Draw(t, "place")
		msg[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if _, err := DecodeQuery(msg); !errors.Is(err, ErrMessage) && !errors.Is(err, ErrVersion) {
			t.Fatalf("a damaged query is read: %v", err)
		}
	})
}

func TestAnswerAndBatch(t *testing.T) {
	msg, err := exampleAnswer().Encode()
	if err != nil {
		t.Fatal(err)
	}
	a, err := DecodeAnswer(msg)
	if err != nil || !reflect.DeepEqual(a, exampleAnswer()) {
		t.Errorf("answer %v\n%+v\n%+v", err, a, exampleAnswer())
	}
	if msg, err = exampleBatch().Encode(); err != nil {
		t.Fatal(err)
	}
	b, err := DecodeBatch(msg)
	if err != nil || !reflect.DeepEqual(b, exampleBatch()) {
		t.Errorf("batch %v\n%+v\n%+v", err, b, exampleBatch())
	}
	for n := range msg {
		if _, err := DecodeBatch(msg[:n]); !errors.Is(err, ErrMessage) {
			t.Fatalf("%d bytes of a batch are read: %v", n, err)
		}
	}
	for _, whole := range []*Batch{{Op: DeleteWhere, Shard: 7, Choice: []byte(`{"where":{"where":"a > 1"}}`)}, {Op: Set, Reply: "in.box", Choice: []byte(`{}`)}} {
		msg, err := whole.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := DecodeBatch(msg); err != nil || !reflect.DeepEqual(b, whole) {
			t.Errorf("%v: %v\n%+v\n%+v", whole.Op, err, b, whole)
		}
	}
	for _, bad := range []*Batch{{Op: Set}, {Op: Add, Choice: []byte(`{}`)}, {Op: DeleteWhere, Choice: []byte(`{}`), Documents: []vectors.Document{{ID: "x"}}}, {Op: Set + 1, Choice: []byte(`{}`)}} {
		if _, err := bad.Encode(); !errors.Is(err, ErrMessage) {
			t.Errorf("%+v is written: %v", bad, err)
		}
	}
	open := &Answer{Hits: []Hit{}, Shards: []ShardState{}, Unknown: []string{"year", "<b>"}, Bare: true}
	if msg, err = open.Encode(); err != nil {
		t.Fatal(err)
	}
	if a, err := DecodeAnswer(msg); err != nil || !reflect.DeepEqual(a, open) {
		t.Errorf("unknown fields: %v\n%+v\n%+v", err, a, open)
	}
	del := &Batch{Op: Delete, Documents: []vectors.Document{{ID: "x", Payload: []byte("p")}}}
	if _, err := del.Encode(); !errors.Is(err, ErrMessage) {
		t.Errorf("a deletion with content is written: %v", err)
	}
}

// deletion is a batch of a group.
func deletion(id string) *Batch {
	return &Batch{ID: ID{5}, Op: Delete, Shard: 2, Documents: []vectors.Document{{ID: id}}}
}

func exampleGroup(t testing.TB) []byte {
	var all [][]byte
	for _, b := range []*Batch{exampleBatch(), deletion("a")} {
		msg, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, msg)
	}
	return EncodeGroup(all)
}

// An entry is a batch or a group of them; what is damaged anywhere is neither.
func TestEntry(t *testing.T) {
	msg := exampleGroup(t)
	all, err := DecodeEntry(msg)
	if err != nil || !reflect.DeepEqual(all, []*Batch{exampleBatch(), deletion("a")}) {
		t.Fatalf("%v: %+v", err, all)
	}
	one, err := exampleBatch().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(EncodeGroup([][]byte{one}), one) {
		t.Error("a batch alone is a group")
	}
	if all, err := DecodeEntry(one); err != nil || len(all) != 1 || !reflect.DeepEqual(all[0], exampleBatch()) {
		t.Errorf("%v: %+v", err, all)
	}
	if size := GroupSize(2, len(msg)-17-4); size != len(msg) {
		t.Errorf("a group of %d bytes is said to have %d", len(msg), size)
	}
	for at := range msg {
		spoiled := bytes.Clone(msg)
		spoiled[at] ^= 0x11
		for _, bad := range [][]byte{msg[:at], spoiled, resealed(spoiled[:len(msg)-4])} {
			if all, err := DecodeEntry(bad); err == nil && !bytes.Equal(bad, msg) {
				t.Fatalf("byte %d: what is damaged is read: %+v", at, all)
			} else if err != nil && !errors.Is(err, ErrMessage) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
		}
	}
}

// resealed gives fuzzed bytes a checksum, without which nothing behind it would be reached.
func resealed(msg []byte) []byte {
	w := writer(bytes.Clone(msg))
	return w.sealed()
}

func seeds(f *testing.F) {
	q, _ := exampleQuery().Encode()
	a, _ := exampleAnswer().Encode()
	b, _ := exampleBatch().Encode()
	u, _ := (&Answer{Unknown: []string{"year"}}).Encode()
	w, _ := (&Batch{Op: Set, Choice: []byte(`{}`)}).Encode()
	for _, m := range [][]byte{q, a, b, u, w} {
		f.Add(m[:len(m)-4])
	}
}

func FuzzQuery(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, msg []byte) {
		_, _ = DecodeQuery(msg)
		if q, err := DecodeQuery(resealed(msg)); err == nil {
			if again, err := q.Encode(); err != nil || !bytes.Equal(again, resealed(msg)) {
				t.Fatalf("not the same again: %v", err)
			}
		}
	})
}

func FuzzAnswer(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, msg []byte) {
		if a, err := DecodeAnswer(resealed(msg)); err == nil {
			if _, err := a.Encode(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzBatch(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, msg []byte) {
		if b, err := DecodeBatch(resealed(msg)); err == nil {
			if again, err := b.Encode(); err != nil || !bytes.Equal(again, resealed(msg)) {
				t.Fatalf("not the same again: %v", err)
			}
		}
	})
}

func FuzzEntry(f *testing.F) {
	seeds(f)
	group := exampleGroup(f)
	f.Add(group[:len(group)-4])
	f.Fuzz(func(t *testing.T, msg []byte) {
		all, err := DecodeEntry(resealed(msg))
		if err != nil || len(all) < 2 {
			return
		}
		var again [][]byte
		for _, b := range all {
			text, err := b.Encode()
			if err != nil {
				t.Fatal(err)
			}
			again = append(again, text)
		}
		if !bytes.Equal(EncodeGroup(again), resealed(msg)) {
			t.Fatal("not the same again")
		}
	})
}
