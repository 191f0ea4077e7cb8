package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/kernels"
	"github.com/plaid-ir/plaid/kernels/maxsim"
	"github.com/plaid-ir/plaid/server"
)

// named is a tensor with another name.
func named(name string, t tensor) tensor {
	t.name = name
	return t
}

// as is a tensor of float32 as one of another type.
func as(dtype string, t tensor) tensor {
	var data []byte
	for b := range slices.Chunk(t.data, 4) {
		bits := binary.LittleEndian.Uint32(b)
		switch v := math.Float32frombits(bits); dtype {
		case "F32":
			data = append(data, b...)
		case "F16":
			data = binary.LittleEndian.AppendUint16(data, kernels.F16FromF32(v))
		case "BF16":
			data = binary.LittleEndian.AppendUint16(data, uint16(bits>>16))
		case "F64":
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(float64(v)))
		}
	}
	return tensor{t.name, dtype, t.shape, data}
}

func randomValues(n int) []float32 {
	r := rand.New(rand.NewPCG(uint64(n), 2))
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(r.IntN(17)-8) / 8 // exact in every type
	}
	return values
}

type rerankedAnswer struct {
	Results []struct {
		Index int
		Score float32
	}
	Documents int `json:"num_documents"`
}

// wantScores are those of documents as one call gives them.
func wantScores(t testing.TB, query, docs []float32, dim int, lengths []int) []float32 {
	offsets, tokens := []int{0}, 0
	for _, n := range lengths {
		tokens += n
		offsets = append(offsets, tokens)
	}
	b, err := maxsim.Select("")
	require.NoError(t, err)
	scores := make([]float32, len(lengths))
	require.NoError(t, b.Score(context.Background(), &maxsim.Call{
		Q: maxsim.Single(maxsim.Float32(query, dim)), D: maxsim.Packed(maxsim.Float32(docs, dim), offsets), Scores: scores,
	}))
	return scores
}

func requireScores(t testing.TB, want []float32, r *reply) {
	require.Equal(t, 200, r.status, r.body)
	var got rerankedAnswer
	r.json(t, &got)
	require.Equal(t, len(want), got.Documents)
	require.Len(t, got.Results, len(want))
	last := float32(math.Inf(1))
	for _, hit := range got.Results {
		require.Equal(t, math.Float32bits(want[hit.Index]), math.Float32bits(hit.Score))
		require.LessOrEqual(t, hit.Score, last)
		last = hit.Score
	}
}

// Documents that come as tensors have the scores of those in JSON, whatever the types and the order
// of the tensors.
func TestRerankTensors(t *testing.T) {
	s := start(t, nil, nil)
	rapid.Check(t, func(r *rapid.T) {
		dim := rapid.IntRange(1, 40).Draw(r, "dim")
		lengths := rapid.SliceOfN(rapid.IntRange(1, 9), 1, 20).Draw(r, "lengths")
		tokens := 0
		var documents list
		for _, n := range lengths {
			tokens += n
		}
		values, query := randomValues(tokens*dim), randomValues(3*dim)
		at := 0
		for _, n := range lengths {
			var rows [][]float32
			for range n {
				rows, at = append(rows, values[at:at+dim]), at+dim
			}
			documents = append(documents, object{"embeddings": rows})
		}
		types := rapid.SampledFrom([]string{"F32", "F16", "BF16", "F64"})
		tensors := []tensor{
			as(types.Draw(r, "type of query"), named("query", f32Tensor(dim, query...))),
			as(types.Draw(r, "type"), f32Tensor(dim, values...)), lengthsTensor(lengths...),
		}
		if rapid.Bool().Draw(r, "request") {
			tensors = append(tensors, requestTensor("{}"))
		}
		want := s.send(t, "POST", "/rerank", object{"query": slices.Collect(slices.Chunk(query, dim)), "documents": documents})
		require.Equal(t, 200, want.status, want.body)
		got := s.send(t, "POST", "/rerank", safetensors(rapid.Permutation(tensors).Draw(r, "order")...), tensorsMedia)
		require.Equal(t, want.body, got.body)
		requireScores(t, wantScores(t, query, values, dim, lengths), got)
	})
}

// rerankBody is a body of random documents.
func rerankBody(dim int, lengths ...int) (body []byte, query, values []float32) {
	tokens := 0
	for _, n := range lengths {
		tokens += n
	}
	query, values = randomValues(4*dim), randomValues(tokens*dim)
	return safetensors(lengthsTensor(lengths...), named("query", f32Tensor(dim, query...)), f32Tensor(dim, values...)), query, values
}

// Documents are scored piece by piece: more of them than a body may have, and than may be held, some
// larger than a piece.
func TestRerankInPieces(t *testing.T) {
	lengths := slices.Repeat([]int{3, 1, 40}, 300)
	lengths[7], lengths[500] = 3000, 5000
	body, query, values := rerankBody(128, lengths...)
	want := wantScores(t, query, values, 128, lengths)
	s := start(t, nil, &server.Options{Limits: server.Limits{Body: 1 << 20, Decoded: 9 << 20, Bodies: 20 << 20}})
	require.Greater(t, len(body), 9<<20)
	requireScores(t, want, s.send(t, "POST", "/rerank", body, tensorsMedia))
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	requireScores(t, want, s.send(t, "POST", "/rerank", packed.Bytes(), tensorsMedia, "Content-Encoding: gzip"))
	bodies, answers := server.Held(s.Server)
	require.Zero(t, bodies+answers)

	// The memory is bounded all the same: one document, and the lengths of many.
	large, _, _ := rerankBody(128, 20_000)
	p := s.refused(t, 413, server.CodeTooLarge, "POST", "/rerank", large, tensorsMedia)
	require.Contains(t, p.Message, "max-memory")
	many, _, _ := rerankBody(1, slices.Repeat([]int{1}, 30_000)...)
	require.Equal(t, 200, s.send(t, "POST", "/rerank", many, tensorsMedia).status)
	many, _, _ = rerankBody(1, slices.Repeat([]int{1}, 40_000)...)
	s.refused(t, 413, server.CodeTooLarge, "POST", "/rerank", many, tensorsMedia)
	// Where lengths come last all of it has to be held.
	query4, docs := named("query", f32Tensor(128, query...)), f32Tensor(128, values...)
	s.refused(t, 413, server.CodeTooLarge, "POST", "/rerank", safetensors(query4, docs, lengthsTensor(lengths...)), tensorsMedia)
	// JSON, and other routes, have the limit of bodies.
	p = s.refused(t, 413, server.CodeTooLarge, "POST", "/rerank", strings.Repeat(" ", 2<<20))
	require.Contains(t, p.Message, "max-body")
	s.refused(t, 413, server.CodeTooLarge, "POST", "/indices/x/search", body, tensorsMedia)
	bodies, answers = server.Held(s.Server)
	require.Zero(t, bodies+answers)
}

func TestBadRerankTensors(t *testing.T) {
	s := start(t, nil, nil)
	const dim = 4
	lengths, query, docs := lengthsTensor(2, 1), named("query", f32Tensor(dim, randomValues(2*dim)...)), f32Tensor(dim, randomValues(3*dim)...)
	spoilt := func(v tensor, i int, bits ...byte) tensor {
		v.data = slices.Clone(v.data)
		copy(v.data[len(bits)*i:], bits)
		return v
	}
	file := safetensors(lengths, query, docs)
	wide := func(name string) tensor { return named(name, f32Tensor(5000, randomValues(5000)...)) }
	huge := func(name string) tensor { return named(name, f32Tensor(1, 3e38)) }
	narrow := named("query", f32Tensor(2, 1, 0))
	flatQuery := tensor{"query", "F32", []int{1}, make([]byte, 4)}
	nan, inf, brainInf := []byte{0, 0, 0xc0, 0x7f}, []byte{0, 0xfc}, []byte{0x80, 0x7f}
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"empty":               {nil, "no safetensors header"},
		"no header":           {file[:20], "cut short"},
		"long header":         {append(binary.LittleEndian.AppendUint64(nil, 1<<17), make([]byte, 1<<17)...), "the limit is 65536"},
		"longer header":       {binary.LittleEndian.AppendUint64(nil, 1<<40), "claims a header"},
		"cut":                 {file[:len(file)-1], "cut short"},
		"goes on":             {append(slices.Clone(file), 0), "the tensors take only"},
		"no query":            {safetensors(lengths, docs), `no tensor named "query"`},
		"no lengths":          {safetensors(query, docs), `no tensor named "lengths"`},
		"no documents":        {safetensors(lengthsTensor(), query, f32Tensor(dim)), "documents is empty"},
		"unknown":             {safetensors(lengths, query, docs, named("other", query)), `"other" is not known`},
		"query of no token":   {safetensors(lengths, named("query", f32Tensor(dim)), docs), "query: there are no vectors"},
		"query of one axis":   {safetensors(lengths, flatQuery, docs), "has the shape [1]"},
		"query of NaN":        {safetensors(lengths, spoilt(query, 6, nan...), docs), "query: token 1: component 2 is NaN"},
		"NaN":                 {safetensors(lengths, query, spoilt(docs, 9, nan...)), "document 1: token 0: component 1 is NaN"},
		"infinite float16":    {safetensors(lengths, query, spoilt(as("F16", docs), 5, inf...)), "document 0: token 1: component 1 is -Inf"},
		"infinite bfloat16":   {safetensors(lengths, query, spoilt(as("BF16", docs), 11, brainInf...)), "document 1: token 0: component 3 is +Inf"},
		"NaN before lengths":  {safetensors(spoilt(docs, 9, nan...), query, lengths), "document 1: token 0: component 1 is NaN"},
		"lengths too few":     {safetensors(lengthsTensor(2), query, docs), "1 short of the 3 vectors"},
		"lengths too many":    {safetensors(lengthsTensor(2, 2), query, docs), "number 1 of lengths is 2, and 1 vectors are left"},
		"negative":            {safetensors(lengthsTensor(4, -1), query, docs), "number 0"},
		"float lengths":       {safetensors(named("lengths", tensor{"", "F32", []int{2}, make([]byte, 8)}), query, docs), "lengths has the type F32; want integers"},
		"integer vectors":     {safetensors(lengths, query, named("vectors", tensor{"", "I8", []int{3, dim}, make([]byte, 3*dim)})), "vectors has the type I8; want F16"},
		"no vectors":          {safetensors(lengthsTensor(2, 0, 1), query, docs), "document 1: there are no vectors"},
		"beyond float32":      {safetensors(lengthsTensor(1), huge("query"), huge("vectors")), "document 0: its score is beyond float32"},
		"request":             {safetensors(lengths, query, docs, requestTensor(`{"query": [[1]]}`)), "as tensors too"},
		"field":               {safetensors(lengths, query, docs, requestTensor(`{"top_k": 1}`)), "top_k"},
		"other dimension":     {safetensors(lengths, narrow, docs), "the documents have dimension 4, the query 2"},
		"too many dimensions": {safetensors(lengthsTensor(1), wide("query"), wide("vectors")), "the limit is 4096"},
	} {
		t.Run(name, func(t *testing.T) {
			code := server.CodeBadRequest
			if strings.Contains(name, "dimension") {
				code = server.CodeDimension
			}
			p := s.refused(t, 400, code, "POST", "/rerank", c.body, tensorsMedia)
			require.Contains(t, p.Message, c.want)
		})
	}
	notFinite := safetensors(lengths, query, spoilt(docs, 9, nan...))
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/rerank", notFinite, tensorsMedia)
	require.Equal(t, []int{1, 0}, []int{*p.Details.Document, *p.Details.Token})
	others := safetensors(named("a", query), lengths, query, docs, named("z", query))
	r := s.send(t, "POST", "/rerank", others, tensorsMedia, "Prefer: handling=lenient")
	require.Equal(t, 200, r.status, r.body)
	s.refused(t, 415, server.CodeMediaType, "POST", "/rerank_with_encoding", file, tensorsMedia)
	p = s.refused(t, 415, server.CodeMediaType, "POST", "/rerank", file, "Content-Type: application/octet-stream")
	require.Contains(t, p.Message, "application/safetensors")
}

// failingScorer is a scorer that fails at its second call.
type failingScorer struct {
	maxsim.Backend
	calls int
}

func (f *failingScorer) Score(ctx context.Context, c *maxsim.Call) error {
	if f.calls++; f.calls == 2 {
		return errors.New("the device is gone")
	}
	return f.Backend.Score(ctx, c)
}

// panickingScorer is one that panics.
type panickingScorer struct{ maxsim.Backend }

func (panickingScorer) Score(context.Context, *maxsim.Call) error { panic("a fault of the scorer") }

func TestRerankPiecesFail(t *testing.T) {
	b, err := maxsim.Select("")
	require.NoError(t, err)
	body, _, _ := rerankBody(128, slices.Repeat([]int{100}, 1500)...) // five pieces of a device
	for _, scorer := range []maxsim.Backend{&failingScorer{Backend: b}, panickingScorer{b}} {
		s := start(t, nil, &server.Options{Scorer: scorer})
		s.refused(t, 500, server.CodeInternal, "POST", "/rerank", body, tensorsMedia)
		bodies, answers := server.Held(s.Server)
		require.Zero(t, bodies+answers)
		require.Zero(t, server.Turns(s.Server))
	}
}

// begun is a connection with a rerank whose body has size bytes; the first ones have come.
func begun(t *testing.T, address string, size int, came []byte) net.Conn {
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	_, err = fmt.Fprintf(conn, "POST /rerank HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Length: %d\r\n\r\n%s", tensorsMedia, size, came)
	require.NoError(t, err)
	return conn
}

// Clients that stop in the middle of their documents keep no turn, and when they leave nothing is
// held for them.
func TestRerankOfSlowClients(t *testing.T) {
	body, query, values := rerankBody(128, slices.Repeat([]int{100}, 100)...)
	st := openStore(t, nil)
	limits := server.Limits{Stall: time.Hour, Concurrent: 1, Wait: time.Hour}
	s, err := server.New(st.Catalog(), nil, patient(&server.Options{Limits: limits}))
	require.NoError(t, err)
	address := listen(t, s, nil)
	var conns []net.Conn
	for i := range 5 {
		conns = append(conns, begun(t, address, len(body), body[:len(body)*(i+1)/6]))
	}
	svc := &service{Server: s, store: st}
	want := wantScores(t, query, values, 128, slices.Repeat([]int{100}, 100))
	requireScores(t, want, svc.send(t, "POST", "/rerank", body, tensorsMedia))
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool {
		bodies, answers := server.Held(s)
		return bodies+answers == 0 && server.Turns(s) == 0
	}, time.Minute, time.Millisecond)

	// A header that speaks of much, and nothing behind it, takes little.
	const most = 400 << 20
	head := fmt.Sprintf(`{"lengths":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},`+
		`"query":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]},"vectors":{"dtype":"F32","shape":[%d,1],"data_offsets":[12,%d]}}`, most/4, 12+most)
	claim := slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), []byte(head),
		binary.LittleEndian.AppendUint64(nil, most/4), make([]byte, 4))
	conn := begun(t, address, len(claim)+most, claim)
	require.Eventually(t, func() bool { bodies, _ := server.Held(s); return bodies > 0 }, time.Minute, time.Millisecond)
	time.Sleep(10 * time.Millisecond)
	require.Eventually(t, func() bool { return server.Turns(s) == 0 }, time.Minute, time.Millisecond)
	bodies, _ := server.Held(s)
	require.Less(t, bodies, int64(2<<20))
	require.NoError(t, conn.Close())
}

// A rerank has its time, however steadily its documents come.
func TestRerankTakesNoLongerThanWork(t *testing.T) {
	body, _, _ := rerankBody(128, slices.Repeat([]int{100}, 100)...)
	limits := server.Limits{Stall: time.Hour, Work: 300 * time.Millisecond}
	s, err := server.New(openStore(t, nil).Catalog(), nil, &server.Options{Limits: limits})
	require.NoError(t, err)
	conn := begun(t, listen(t, s, nil), len(body), body[:len(body)/2])
	defer conn.Close()
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(answer), "408 Request Timeout")
	require.Contains(t, string(answer), string(server.CodeTimeout))
}

// Queries of recall and explain may be tensors too.
func TestTensorsOfOtherRoutes(t *testing.T) {
	s := startPets(t)
	params := object{"params": object{"top_k": 2}}
	text, err := json.Marshal(params)
	require.NoError(t, err)
	params["queries"] = list{object{"embeddings": matrix("cats sleep")}, object{"embeddings": matrix("dogs")}}
	want := s.send(t, "POST", "/indices/pets/recall", params)
	require.Equal(t, 200, want.status, want.body)
	vectors := f32Tensor(wordDim, slices.Concat(flat("cats sleep"), flat("dogs"))...)
	got := s.send(t, "POST", "/indices/pets/recall", safetensors(vectors, lengthsTensor(2, 1), requestTensor(string(text))), tensorsMedia)
	require.Equal(t, want.body, got.body)

	want = s.send(t, "POST", "/indices/pets/explain", object{"id": "a", "query": object{"embeddings": matrix("cats"), "weights": list{.5}}})
	require.Equal(t, 200, want.status, want.body)
	query := named("query", f32Tensor(wordDim, flat("cats")...))
	got = s.send(t, "POST", "/indices/pets/explain", safetensors(query, requestTensor(`{"id": "a", "query": {"weights": [0.5]}}`)), tensorsMedia)
	require.Equal(t, want.body, got.body)
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/explain", safetensors(query, requestTensor(`{"id": "a", "text": "x"}`)), tensorsMedia)
	require.Contains(t, p.Message, "one of them only")
	p = s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/explain",
		safetensors(query, requestTensor(`{"id": "a", "query": {"embeddings": [[1]]}}`)), tensorsMedia)
	require.Contains(t, p.Message, "as a tensor too")
}

// tensorsAnswer takes an answer of tensors apart.
func tensorsAnswer(t testing.TB, r *reply) (matrices [][]float32, dim int, answer object) {
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, "application/safetensors", r.header.Get("Content-Type"))
	body := []byte(r.body)
	require.Equal(t, fmt.Sprint(len(body)), r.header.Get("Content-Length"))
	size := binary.LittleEndian.Uint64(body)
	var header map[string]struct {
		Dtype   string
		Shape   []int
		Offsets [2]int `json:"data_offsets"`
	}
	require.NoError(t, json.Unmarshal(body[8:8+size], &header))
	part := func(name, dtype string) []byte {
		require.Equal(t, dtype, header[name].Dtype, name)
		return body[8+int(size)+header[name].Offsets[0] : 8+int(size)+header[name].Offsets[1]]
	}
	require.Len(t, header, 3)
	require.NoError(t, json.Unmarshal(part("answer", "U8"), &answer))
	dim = header["vectors"].Shape[1]
	values, lengths := part("vectors", "F32"), part("lengths", "I64")
	for n := range slices.Chunk(lengths, 8) {
		var m []float32
		for range int(binary.LittleEndian.Uint64(n)) * dim {
			m, values = append(m, math.Float32frombits(binary.LittleEndian.Uint32(values))), values[4:]
		}
		matrices = append(matrices, m)
	}
	require.Empty(t, values)
	return matrices, dim, answer
}

// Who asks for tensors gets the vectors of texts and documents so.
func TestAnswersOfTensors(t *testing.T) {
	s := startPets(t)
	const accept = "Accept: application/json;q=0.5, application/safetensors"
	uncut := func(fields object) object {
		fields["truncated"], fields["dropped_tokens"] = 0., 0.
		return fields
	}
	for _, c := range []struct {
		path string
		body object
		want []string
		rest object
	}{
		{"/encode", object{"input_type": "document", "texts": list{"cats sleep", "", "dogs"}},
			[]string{"cats sleep", "", "dogs"}, uncut(object{"num_texts": 3.})},
		{"/encode", object{"input_type": "query", "texts": list{"cats"}, "pool_factor": 2},
			[]string{"cats"}, uncut(object{"num_texts": 1.})},
		{"/v1/embeddings", object{"input": list{"cats sleep"}}, []string{"cats sleep"},
			object{"object": "list", "model": "words", "usage": uncut(object{"prompt_tokens": 2., "total_tokens": 2.})}},
	} {
		got, dim, answer := tensorsAnswer(t, s.send(t, "POST", c.path, c.body, accept))
		require.Equal(t, wordDim, dim)
		require.Len(t, got, len(c.want))
		for i, text := range c.want {
			require.Equal(t, flat(text), got[i])
		}
		require.Equal(t, c.rest, answer)
		for _, other := range []string{"Accept: */*", "Accept: application/json", "Accept: application/safetensors;q=0", "Accept: ;"} {
			r := s.send(t, "POST", c.path, c.body, other)
			require.Equal(t, "application/json", r.header.Get("Content-Type"), other)
		}
	}
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/encode", object{"input_type": "query", "texts": list{""}}, accept)
	require.Contains(t, p.Message, "texts[0] is empty")

	var plain struct {
		Documents []object
	}
	s.ok(t, 200, "GET", "/indices/pets/documents?id=c&id=a&vectors=json", nil, &plain)
	got, _, answer := tensorsAnswer(t, s.send(t, "GET", "/indices/pets/documents?id=c&id=a", nil, accept))
	for i, d := range answer["documents"].(list) {
		rows := plain.Documents[i]["embeddings"].(list)
		delete(plain.Documents[i], "embeddings")
		require.Equal(t, plain.Documents[i], d)
		var want []float32
		for _, row := range rows {
			for _, x := range row.(list) {
				want = append(want, float32(x.(float64)))
			}
		}
		require.Equal(t, want, got[i])
	}
	p = s.refused(t, 400, server.CodeBadRequest, "GET", "/indices/pets/documents?id=a&vectors=json", nil, accept)
	require.Contains(t, p.Message, "leave out one of them")
	bodies, answers := server.Held(s.Server)
	require.Zero(t, bodies+answers)

	small := startAt(t, s.store, words{}, &server.Options{Limits: server.Limits{Answer: 500}})
	p = small.refused(t, 413, server.CodeTooLarge, "POST", "/encode", object{"input_type": "query", "texts": list{strings.Repeat("cats ", 20)}}, accept)
	require.Contains(t, p.Message, "the answer has more than 500 bytes")
}

// Whatever file of tensors comes, the answer is JSON, and no fault.
func FuzzTensors(f *testing.F) {
	st := openStore(f, nil)
	s, err := server.New(st.Catalog(), words{}, nil)
	require.NoError(f, err)
	svc := &service{Server: s, store: st}
	svc.addPets(f)
	good, asked := f32Tensor(wordDim, flat("cats dogs")...), named("query", as("BF16", f32Tensor(wordDim, flat("cats")...)))
	f.Add(safetensors(good, lengthsTensor(2)), true)
	f.Add(safetensors(good, lengthsTensor(1, 1), requestTensor(`{"queries": [{"ids": []}, {}], "metadata": false}`)), true)
	f.Add(safetensors(good, tensor{"lengths", "I8", []int{2}, []byte{1, 0xff}}, requestTensor(`{"metadata": [{"_id": "x"}]}`)), false)
	f.Add(safetensors(lengthsTensor(1, 1), asked, good), false)
	f.Add(safetensors(as("F16", good), lengthsTensor(1, 0, 1), asked), true)
	f.Add(safetensors(asked, requestTensor(`{"id": "a"}`)), true)
	f.Fuzz(func(t *testing.T, body []byte, sized bool) {
		for _, path := range []string{"/indices/pets/search", "/indices/pets/update", "/indices/pets/recall",
			"/indices/pets/explain", "/rerank"} {
			r := httptest.NewRequest("POST", "http://localhost"+path, bytes.NewReader(body))
			if !sized {
				r.ContentLength = -1
			}
			r.Header.Set("Content-Type", "application/safetensors")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code >= 500 || !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
			if bodies, answers := server.Held(s); bodies+answers > 0 {
				t.Fatalf("%s: %d bytes are held", path, bodies+answers)
			}
		}
	})
}
