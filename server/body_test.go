package server_test

import (
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/server"
)

// Numbers of parameters are those that were written: not the nearest float64, by which a
// whole number is another one, and 7 is the text "7.0".
func TestParametersKeepTheirNumbers(t *testing.T) {
	s := start(t, words{}, nil)
	s.ok(t, 200, "POST", "/indices", object{"name": "tweets"}, nil)
	s.ok(t, 202, "POST", "/indices/tweets/update", `{
		"documents": [{"embeddings": [[1, 0]]}, {"embeddings": [[1, 0]]}, {"embeddings": [[0, 1]]}],
		"metadata": [{"_id": "a", "tweet": 1152921504606846976}, {"_id": "b", "tweet": 1152921504606846977}, {"_id": "c", "code": "7"}]}`, nil)
	chosen := func(condition string) []uint32 {
		var out struct {
			Documents []uint32 `json:"document_ids"`
		}
		s.ok(t, 200, "POST", "/indices/tweets/metadata/query", condition, &out)
		return out.Documents
	}
	require.Equal(t, []uint32{1}, chosen(`{"condition": "tweet = ?", "parameters": [1152921504606846977]}`))
	require.Equal(t, []uint32{2}, chosen(`{"condition": "code = ?", "parameters": [7]}`))
	for _, body := range []string{
		`{"queries": [{"embeddings": [[1, 0]]}], "filter_condition": "tweet >= ?", "filter_parameters": [1152921504606846977]}`,
		`{"queries": [{"embeddings": [[1, 0]], "filter_condition": "tweet = ?", "filter_parameters": [1152921504606846977]}], "filter_condition": "tweet > ?", "filter_parameters": [0]}`,
	} {
		var out found
		s.ok(t, 200, "POST", "/indices/tweets/search/filtered", body, &out)
		require.Equal(t, []uint32{1}, out.Results[0].Documents, body)
	}
	s.ok(t, 202, "DELETE", "/indices/tweets/documents", `{"condition": "tweet = ?", "parameters": [1152921504606846977]}`, nil)
	require.Equal(t, []uint32{0}, chosen(`{"condition": "tweet > ?", "parameters": [0]}`))
	s.refused(t, 404, server.CodeDocumentNotFound, "GET", "/indices/tweets/documents?id=b", nil)

	// A text query that has conditions of its own.
	s.ok(t, 200, "POST", "/indices", object{"name": "notes"}, nil)
	s.ok(t, 202, "POST", "/indices/notes/update_with_encoding", `{"documents": ["cats", "cats"], "metadata": [{"n": 1152921504606846976}, {"n": 1152921504606846977}]}`, nil)
	var out found
	s.ok(t, 200, "POST", "/indices/notes/search_with_encoding", `{"queries": [{"text": "cats", "filter_condition": "n = ?", "filter_parameters": [1152921504606846977]}]}`, &out)
	require.Equal(t, []uint32{1}, out.Results[0].Documents)
}

// Strings that are no text would become others, and so different ids one. What strict
// readers could not read again is refused too, with its place.
func TestBodiesThatOthersReadDifferently(t *testing.T) {
	s := startPets(t)
	update := func(metadata string) string {
		return `{"documents": [{"embeddings": [[` + strings.Repeat("0,", wordDim-1) + `1]]}], "metadata": [` + metadata + `]}`
	}
	deep := strings.Repeat(`[`, 200) + strings.Repeat(`]`, 200)
	for body, says := range map[string]string{
		update("{\"_id\": \"a\xffb\"}"):                         "metadata[0]._id: a string that is not UTF-8",
		update("{\"_id\": \"a\xfeb\"}"):                         "metadata[0]._id",
		update(`{"_id": "a\ud800b"}`):                           `metadata[0]._id: \ud800 is half of a character`,
		update(`{"t": ["\udc00"]}`):                             "metadata[0].t[0]",
		update(`{"t": {"x": 1e400}}`):                           "metadata[0].t.x: the number 1e400 is too large",
		update(`{"t": [[1e400]]}`):                              "t[0][0]: the number 1e400 is too large",
		update(`{"t": ` + deep + `}`):                           "metadata[0].t[0]",
		update(`{}`) + ` xyz`:                                   "after the value",
		update(`{"_ID": "x"}`):                                  "reserved",
		`{"documents": [{"embeddings": [[1]]}], "metadata": 7}`: "metadata: a number is in the place of a list",
	} {
		p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/update", body)
		require.Contains(t, p.Message, says)
	}
	for body, says := range map[string]string{
		`{"condition": "year > ?", "parameters": [0], "updates": {"t": "\ud800"}}`:      "updates.t",
		`{"condition": "year > ?", "parameters": [0], "updates": {"t": 1e400}}`:         "updates.t: the number 1e400",
		`{"condition": "year > ?", "parameters": [0], "updates": {"t": [[1e400]]}}`:     `its value "[[1e400]]": [0][0]: the number 1e400`,
		`{"condition": "year > ?", "parameters": [1e400], "updates": {"t": 1}}`:         "parameters[0]: the number 1e400 is too large",
		"{\"condition\": \"title = ?\", \"parameters\": [\"\xff\"], \"updates\": {}}":   "parameters[0]",
		`{"condition": "title = ?", "parameters": ["` + `\ud800` + `"], "updates": {}}`: "parameters[0]",
	} {
		p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/metadata/update", body)
		require.Contains(t, p.Message, says)
	}
	p := s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/search", `{"queries": [{"embeddings": [[1]]}, {"embeddings": [[1]], "ids": ["\ud800"]}]}`)
	require.Equal(t, 1, *p.Details.Query)
	p = s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/search", `{"queries": [], "params": {"top_k": "x"}}`)
	require.True(t, strings.HasPrefix(p.Message, "params.top_k:"), p.Message)
	p = s.refused(t, 400, server.CodeBadRequest, "POST", "/indices/pets/search", `{"queries": [], "filter_condition": 7}`)
	require.True(t, strings.HasPrefix(p.Message, "filter_condition:"), p.Message)
	var info object
	s.ok(t, 200, "GET", "/indices/pets", nil, &info)
	require.Equal(t, 3., info["num_documents"]) // nothing of all this
}

// What a body becomes is counted before it is made: a few bytes can stand for a hundred
// times as many.
func TestBodiesAreCountedAsTheyAreRead(t *testing.T) {
	most := effort.Cases(4<<20, 64<<20)
	s := start(t, words{}, &server.Options{Limits: server.Limits{Decoded: int64(most)}})
	s.addPets(t)
	allocated := func(do func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	n := most / 64
	for path, body := range map[string]string{
		"/indices/pets/search":               `{"queries": [` + strings.Repeat("{},", n) + `{}]}`,
		"/indices/pets/update":               `{"documents": [` + strings.Repeat("{},", n) + `{}]}`,
		"/indices/pets/search_with_encoding": `{"queries": [` + strings.Repeat(`"a",`, n) + `"a"]}`,
		"/indices/pets/metadata/query":       `{"condition": "year = ?", "parameters": [` + strings.Repeat(`0,`, n) + `0]}`,
		"/indices/pets/metadata/get":         `{"document_ids": [` + strings.Repeat(`0,`, 2*n) + `0]}`,
	} {
		took := allocated(func() {
			p := s.refused(t, 413, server.CodeTooLarge, "POST", path, body)
			require.Contains(t, p.Message, "max-memory", path)
		})
		require.Less(t, took, uint64(most), path) // the body itself, and its growth
	}
	// Tensors, too: a byte can stand for a document.
	n /= 4
	head := fmt.Sprintf(`{"vectors":{"dtype":"F16","shape":[%d,1],"data_offsets":[0,%d]},"lengths":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}}`, n, 2*n, n, 2*n, 3*n)
	file := string([]byte{byte(len(head)), byte(len(head) >> 8), 0, 0, 0, 0, 0, 0}) + head + strings.Repeat("\x00", 2*n) + strings.Repeat("\x01", n)
	p := s.refused(t, 413, server.CodeTooLarge, "POST", "/indices/pets/update", file, tensorsMedia)
	require.Contains(t, p.Message, "max-memory")
	// A list in the place of a parameter is counted as a row of a vector, and stays its text.
	nested := `{"condition": "year = ?", "parameters": [[` + strings.Repeat("10,", most/16) + `10]]}`
	whole := start(t, words{}, nil)
	whole.addPets(t)
	require.Less(t, allocated(func() { whole.ok(t, 200, "POST", "/indices/pets/metadata/query", nested, nil) }), uint64(8*len(nested)))
	// All of it is given back: the next request has the whole budget.
	small := start(t, words{}, &server.Options{Limits: server.Limits{Bodies: 1 << 20}})
	for range 50 {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "http://localhost/indices", strings.NewReader(`{"name": "`+strings.Repeat("x", 100_000)+`"}`))
		r.Header.Set("Content-Type", "application/json")
		small.ServeHTTP(w, r)
		require.Equal(t, 400, w.Code, w.Body)
	}
}

// What others have is waited for, and those who would wait too long are told so: bodies, and
// what searches by words take.
func TestMemoryIsWaitedFor(t *testing.T) {
	s := start(t, words{}, &server.Options{Limits: server.Limits{Wait: time.Hour}})
	s.addPets(t)
	body := object{"text_query": list{"dogs"}, "params": object{"top_k": 1}}
	giveBack := server.HoldBodies(s.Server)
	statuses := make(chan int, 1)
	go func() { statuses <- s.send(t, "POST", "/indices/pets/search", body).status }()
	require.Eventually(t, func() bool { return server.WaitingForBodies(s.Server) == 1 }, 5*time.Minute, time.Millisecond)
	require.Empty(t, statuses)
	giveBack()
	require.Equal(t, 200, <-statuses)
	bodies, answers := server.Held(s.Server)
	require.Zero(t, bodies)
	require.Zero(t, answers)

	giveBack = server.HoldBodiesBut(s.Server, 256<<10) // which is enough for the body
	body["text_query"], body["text_mode"] = list{`"dogs bark"` + strings.Repeat(" ", 8000)}, "expression"
	go func() { statuses <- s.send(t, "POST", "/indices/pets/search", body).status }()
	require.Eventually(t, func() bool { return server.WaitingForBodies(s.Server) == 1 }, 5*time.Minute, time.Millisecond)
	_, answers = server.Held(s.Server)
	require.Zero(t, answers, "nobody who has memory of answers waits for that of bodies: others wait the other way around")
	giveBack()
	require.Equal(t, 200, <-statuses)

	hasty := start(t, words{}, &server.Options{Limits: server.Limits{Wait: time.Millisecond}})
	defer server.HoldBodies(hasty.Server)()
	p := hasty.refused(t, 503, server.CodeBusy, "POST", "/indices", object{"name": "x"})
	require.Contains(t, p.Message, "for bodies (max-memory)")
	require.Positive(t, p.RetryAfter)
}

// The request that may take the memory that is kept back waits for no turn: who has one may
// wait for that memory.
func TestTurnsAndMemoryDoNotWaitForEachOther(t *testing.T) {
	b := &blocking{entered: make(chan struct{}, 1), free: make(chan struct{}, 1)}
	s := start(t, b, &server.Options{Limits: server.Limits{Concurrent: 1, Wait: -1, Work: 10 * time.Minute, Bodies: 1 << 20, Decoded: 1 << 19}})
	s.addPets(t)
	statuses := make(chan int, 1)
	go func() {
		statuses <- s.send(t, "POST", "/indices/pets/search_with_encoding", object{"queries": list{"cats"}}).status
	}()
	<-b.entered // it has the turn
	defer server.FillBodies(s.Server)()
	s.ok(t, 200, "POST", "/indices/pets/search", object{"queries": list{query("dogs")}}, nil)
	b.free <- struct{}{}
	require.Equal(t, 200, <-statuses)
}
