package command

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

const (
	// memorySetting is --max-memory of the service that is tested, and memoryBase what the process
	// has beside that and beside the pages of files: the model, the buffers of searches and of a
	// training, and garbage that waits for the collector. Both in MiB.
	memorySetting = 96
	memoryBase    = 144
)

// worst is a request that makes a route take much memory. {n} in its path is the client's number.
type worst struct {
	path, body, media string
	clients           int    // at least
	accept            string // "": JSON
}

// tensorsMedia is that of bodies and answers of tensors.
const tensorsMedia = "application/safetensors"

// tensorsOf is a body of documents of dimension 16, and of a query if one is wanted, with about so
// many bytes of vectors.
func tensorsOf(query bool, tokens, bytes int) string {
	const row = 4 * 16
	n := max(bytes/row/tokens, 1)
	header, at := "{", 0
	add := func(name, dtype, shape string, size int) {
		header += fmt.Sprintf(`%q:{"dtype":%q,"shape":[%s],"data_offsets":[%d,%d]},`, name, dtype, shape, at, at+size)
		at += size
	}
	add("lengths", "I32", fmt.Sprint(n), 4*n)
	data := strings.Repeat(string(binary.LittleEndian.AppendUint32(nil, uint32(tokens))), n)
	if query {
		add("query", "F32", "1,16", row)
		data += strings.Repeat("\x00\x00\x80?", 16)
	}
	add("vectors", "F32", fmt.Sprintf("%d,16", n*tokens), n*tokens*row)
	header = strings.TrimSuffix(header, ",") + "}"
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + data + strings.Repeat("\x00\x00\x80?", 16*n*tokens)
}

// worstRequests are those of each route: of every operation of the description at least one. Bodies
// have about so many bytes, and those that are encoded so many.
func worstRequests(size, encoded int, backup string) map[string][]worst {
	const accept = 20 // ids of a request whose address may not be too long
	row, wide := rowOf(16), rowOf(128)
	many := func(before, item, after string, bytes int) string {
		return before + strings.Repeat(item+",", bytes/(len(item)+1)) + item + after
	}
	post := func(path string, bodies ...string) (all []worst) {
		for _, body := range bodies {
			all = append(all, worst{path: path, body: body, media: "application/json"})
		}
		return all
	}
	get := func(paths ...string) (all []worst) {
		for _, path := range paths {
			all = append(all, worst{path: path})
		}
		return all
	}
	text := `"` + strings.Repeat("a ", 500) + `"`
	ids := "id=book"
	for i := range accept {
		ids += fmt.Sprintf("&id=d%d", i)
	}
	updates := []string{many(`{"documents":[`, `{}`, `]}`, size), many(`{"documents":[{"embeddings":[`, `[0]`, `]}]}`, size),
		many(`{"documents":[`, `{"embeddings":[`+row+`]}`, `]}`, size/4)}
	feedback := func(documents int) string { // 100 at most
		return fmt.Sprintf(`,"feedback":{"documents":%d,"like":["d1","d2"],"unlike":["d3"]}`, documents)
	}
	searches := func(item string) []string {
		query := `{"embeddings":[` + row + `]}`
		both := func(n int) string {
			queries, words := strings.Repeat(query+",", n-1)+query, strings.Repeat(`"x",`, n-1)+`"x"`
			return `{"queries":[` + queries + `],"text_query":[` + words + `],"params":{"top_k":100},"passages":100`
		}
		return []string{
			both(min(200, size/512)) + `,"group":"maxsim"` + item + `}`, both(10) + `,"group":"maxsim","metadata":false` + item + `}`,
			both(10) + `,"group":"best","metadata":false` + feedback(20) + item + `}`,
			many(`{"queries":[`, query, `],"params":{"top_k":100}`+feedback(97)+item+`}`, min(20_000, size/16)),
			many(`{"queries":[{"embeddings":[`, row, `]}]`+feedback(97)+item+`}`, size),
			many(`{"queries":[`, `{}`, `]}`, size), many(`{"queries":[`, `{"embeddings":[`+row+`]}`, `],"params":{"top_k":100}`+item+`}`, min(20_000, size/16)),
			many(`{"queries":[{"embeddings":[`, row, `]}]`+item+`}`, size), many(`{"text_query":[`, `"x"`, `]`+item+`}`, min(2000, size/64)),
			many(`{"queries":[{"embeddings":[`+row+`]}],"ids":[`, `"book"`, `],"group":"best","passages":100`+item+`}`, size),
		}
	}
	long := `"` + strings.Repeat("!", min(encoded, 1<<20)) + `"` // each byte is a token, and nearly all are cut
	texts := func(item string) []string {
		return []string{
			`{"queries":[` + long + `]` + item + `}`,
			many(`{"queries":[`, `"a"`, `]`+item+`}`, encoded/8),
			many(`{"queries":[`, `"a"`, `]`+feedback(10)+item+`}`, encoded/8),
			`{"queries":["page"],"group":"maxsim","passages":50,"highlight":true` + item + `}`,
			`{"queries":["page"],"text_query":["page"],"group":"sum","passages":50,"highlight":true` + feedback(10) + item + `}`,
		}
	}
	tensors := func(path string, query bool) []worst {
		var all []worst
		for _, tokens := range []int{1, 200, size / 64} {
			all = append(all, worst{path: path, body: tensorsOf(query, tokens, size), media: tensorsMedia})
		}
		return all
	}
	condition := many(`{"condition":"n = ?","parameters":[`, `0`, `]}`, size)
	agent := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
	}
	tool := func(name, arguments string) string {
		return agent("tools/call", `{"name":"`+name+`","arguments":`+arguments+`}`)
	}
	return map[string][]worst{
		"GET /": get("/"), "GET /health": get("/health"), "GET /livez": get("/livez"), "GET /readyz": get("/readyz"), "GET /metrics": get("/metrics"),
		"GET /openapi.json": get("/openapi.json"), "GET /api-docs/openapi.json": get("/api-docs/openapi.json"), "GET /tokens": get("/tokens"), "GET /nodes": get("/nodes"),
		"GET /v1/models": get("/v1/models"), "GET /indices": get("/indices"), "GET /indices/{name}": get("/indices/a"), "GET /indices/{name}/stats": get("/indices/a/stats"),
		"POST /indices":                             post("/indices", `{"name":"`+strings.Repeat("x", size)+`"}`),
		"DELETE /indices/{name}":                    get("/indices/none{n}"),
		"PUT /indices/{name}/config":                post("/indices/w/config", `{"max_documents":`+strings.Repeat(" ", size)+`10000000}`),
		"POST /indices/{name}/update":               append(post("/indices/w/update", updates...), tensors("/indices/w/update", false)...),
		"POST /indices/{name}/documents":            post("/indices/w/documents", updates...),
		"POST /indices/{name}/update_with_encoding": post("/indices/w/update_with_encoding", many(`{"documents":[`, text, `]}`, encoded), `{"documents":["`+strings.Repeat("word. ", encoded/12)+`"],"metadata":[{"_id":"long{n}"}],"window":20}`),
		"DELETE /indices/{name}/documents":          post("/indices/a/documents", condition, many(`{"ids":[`, `"x"`, `]}`, size)),
		"GET /indices/{name}/documents": append(get("/indices/a/documents?limit=10000&vectors=json&"+ids, "/indices/a/documents?limit=10000&vectors=base64&"+ids),
			worst{path: "/indices/a/documents?limit=10000&" + ids, accept: tensorsMedia}),
		"POST /indices/{name}/search":          post("/indices/a/search", searches("")...),
		"POST /indices/{name}/search/filtered": post("/indices/a/search/filtered", append(searches(`,"filter_condition":"n = 1"`), many(`{"queries":[{"embeddings":[`+row+`]}],"filter_condition":"n = ?","filter_parameters":[`, `0`, `]}`, size))...),
		"POST /indices/{name}/search_with_encoding": append(post("/indices/t/search_with_encoding", texts("")...),
			worst{"/indices/h/search_with_encoding", `{"queries":["page"],"highlight":true,"metadata":false}`, "application/json", 8, ""}),
		"POST /indices/{name}/search/filtered_with_encoding": post("/indices/t/search/filtered_with_encoding", texts(`,"filter_condition":"n = 1"`)...),
		"POST /indices/{name}/explain": append(post("/indices/a/explain", many(`{"document_id":1,"similarities":true,"query":{"embeddings":[`, row, `]}}`, min(50_000, size/4))),
			append(post("/indices/t/explain", `{"document_id":1,"similarities":true,"text":`+text+`}`), post("/indices/h/explain", `{"document_id":1,"text":`+long+`}`)...)...),
		"POST /indices/{name}/recall":          post("/indices/a/recall", many(`{"queries":[`, `{"embeddings":[`+row+`]}`, `]}`, min(10_000, size/16))),
		"GET /indices/{name}/metadata":         get("/indices/a/metadata"),
		"GET /indices/{name}/metadata/count":   get("/indices/a/metadata/count"),
		"POST /indices/{name}/metadata/check":  post("/indices/a/metadata/check", many(`{"document_ids":[`, `1`, `]}`, size)),
		"POST /indices/{name}/metadata/query":  post("/indices/a/metadata/query", condition),
		"POST /indices/{name}/metadata/get":    post("/indices/a/metadata/get", many(`{"document_ids":[`, `1`, `]}`, size/4), `{}`, `{"values":false}`),
		"POST /indices/{name}/metadata/update": post("/indices/a/metadata/update", `{"condition":"n = ?","parameters":[1],"updates":`+many(`{"y":[`, `{}`, `]}`, size)+`}`),
		"POST /indices/{name}/facets":          post("/indices/a/facets", many(`{"fields":[`, `"t"`, `],"values":1000000}`, min(300, encoded/100))),
		"GET /indices/{name}/image":            get("/indices/a/image?id=d1"),
		"POST /indices/{name}/verify":          get("/indices/a/verify"),
		"POST /indices/{name}/retrain":         get("/indices/t/retrain"),
		"POST /indices/{name}/compact":         get("/indices/t/compact"),
		"POST /indices/{name}/ids":             post("/indices/a/ids", `{"limit":100000}`, condition),
		"GET /indices/{name}/backup":           get("/indices/a/backup"),
		"PUT /indices/{name}/backup":           {{path: "/indices/copy{n}/backup", body: backup, media: "application/octet-stream"}},
		"PUT /indices/{name}/import":           {{path: "/indices/new{n}/import", body: strings.Repeat("no archive", size/10), media: "application/x-tar"}},
		"POST /encode": append(post("/encode", many(`{"input_type":"document","texts":[`, text, `]}`, encoded/4), many(`{"input_type":"query","texts":[`, `"a"`, `]}`, encoded), `{"input_type":"query","texts":[`+long+`]}`, `{"input_type":"document","texts":[`+long+`]}`),
			worst{path: "/encode", body: many(`{"input_type":"document","texts":[`, text, `]}`, encoded/4), media: "application/json", accept: tensorsMedia}),
		"POST /v1/embeddings":        post("/v1/embeddings", many(`{"input":[`, text, `]}`, encoded/4)),
		"POST /rerank":               append(post("/rerank", `{"query":[`+row+`],`+many(`"documents":[`, `{"embeddings":[`+row+`]}`, `]}`, size), `{"query":[`+wide+`],`+many(`"documents":[`, `{"embeddings":[`+wide+`]}`, `]}`, size), many(`{"documents":[{"embeddings":[[1]]}],"query":[`, `[0]`, `]}`, size)), tensors("/rerank", true)...),
		"POST /rerank_with_encoding": post("/rerank_with_encoding", many(`{"query":"a","documents":[`, `"a"`, `]}`, encoded)),
		"POST /v1/rerank":            post("/v1/rerank", many(`{"query":"a","return_documents":true,"documents":[`, `"a"`, `]}`, encoded)),
		"POST /v2/rerank":            post("/v2/rerank", many(`{"query":"a","documents":[`, `{"text":"a"}`, `]}`, encoded)),
		"POST /mcp": post("/mcp", agent("resources/read", `{"uri":"plaid://a/book"}`), agent("resources/read", `{"uri":"plaid://a/d1"}`), tool("list", `{}`),
			tool("get", many(`{"index":"a","ids":["book",`, `"d1"`, `]}`, 18*5)), tool("similar", `{"index":"a","id":"book","k":20}`),
			tool("search", `{"index":"a","query":"x","mode":"keywords","k":20}`),
			tool("search", `{"index":"t","query":`+text+`,"mode":"vectors","k":20,"group":true,"like":["d1","d2"],"unlike":["d3"]}`),
			tool("search", `{"index":"t","query":`+text+`,"mode":"hybrid","k":20,"group":true,"like":["d1","d2"],"unlike":["d3"]}`),
			tool("explain", `{"index":"t","id":"d1","query":`+text+`}`),
			tool("get", many(`{"index":"a","ids":[`, `{}`, `]}`, 250_000)), many(`[`, agent("tools/list", `{}`), `]`, 250_000)),
	}
}

// rowOf is a vector as JSON.
func rowOf(dim int) string {
	row := make([]float64, dim)
	for i := range row {
		row[i] = math.Round(1000*math.Sin(float64(i+1))) / 1000
	}
	text, _ := json.Marshal(row) // of numbers
	return string(text)
}

// Whatever requests a token allows, many of the worst of each route at once, of clients that do
// not take their answers: the process of plaid serve stays within what --max-memory says.
func TestMemoryOfRequests(t *testing.T) {
	if effort.RaceDetector {
		t.Skip("the race detector takes memory of its own")
	}
	clients, size, encoded := 2, 64<<10, 1<<10
	if effort.Long() {
		clients, size, encoded = 64, 4<<20, 4<<20
	}
	s := serveWithLimits(t)
	fill(t, s)
	backup := s.ok(t, http.MethodGet, "/indices/a/backup", "")
	var description struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	require.NoError(t, json.Unmarshal(s.ok(t, http.MethodGet, "/openapi.json", ""), &description))
	requests := worstRequests(size, encoded, string(backup))
	t.Logf("%d MiB after the first documents", s.most.Load())
	for _, pattern := range slices.Sorted(maps.Keys(description.Paths)) {
		for method := range description.Paths[pattern] {
			name := strings.ToUpper(method) + " " + pattern
			require.NotEmpty(t, requests[name], "worstRequests has none of the route %s", name)
			for _, w := range requests[name] {
				began := time.Now()
				statuses := s.slowly(t, strings.ToUpper(method), w, max(clients, w.clients))
				t.Logf("%s %.40q: %v, %d MiB at most, %v", name, w.body, statuses, s.most.Load(), time.Since(began).Round(time.Millisecond))
				require.Zero(t, statuses[http.StatusInternalServerError], name)
			}
			delete(requests, name)
		}
	}
	require.Empty(t, requests, "of routes that the service does not have")
	require.Less(t, s.most.Load(), int64(memorySetting+memoryBase), "MiB")
}

// limitedService is a process of plaid serve.
type limitedService struct {
	address string
	pid     int
	most    atomic.Int64 // MiB that it had
}

func serveWithLimits(t *testing.T) *limitedService {
	t.Helper()
	nano, err := filepath.Abs("../../../docs/examples/quickstart/colbert-nano")
	require.NoError(t, err)
	cmd := exec.Command("plaid", "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--model", nano, "--threads", "2",
		"--max-memory", fmt.Sprint(memorySetting<<20), "--max-body", "16MiB", "--work-timeout", "10s", "--log-level", "info")
	// The collector is told what there is: else garbage takes as much again as what lives.
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%dMiB", memorySetting+memoryBase*2/3))
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	read := make(chan struct{})
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		<-read
		_ = cmd.Wait() // requests that were cut off make it an error
	})
	address := make(chan string, 1)
	go func() {
		defer close(read)
		defer close(address)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if _, rest, is := strings.Cut(lines.Text(), "msg=serving address=http://"); is {
				address <- strings.Fields(rest)[0]
			}
			if strings.Contains(lines.Text(), "a panic") {
				t.Error(lines.Text())
			}
		}
	}()
	s := &limitedService{address: <-address, pid: cmd.Process.Pid}
	require.NotEmpty(t, s.address)
	s.watch(t)
	require.Eventually(t, func() bool {
		r, err := http.Get("http://" + s.address + "/readyz")
		return err == nil && r.Body.Close() == nil && r.StatusCode == http.StatusOK
	}, 5*time.Minute, 10*time.Millisecond)
	return s
}

// fill makes an index of vectors, with documents and one of passages, one of texts, one with long texts
// next to its vectors, and one to write to.
func fill(t *testing.T, s *limitedService) {
	t.Helper()
	s.ok(t, http.MethodPost, "/indices", `{"name":"a"}`)
	s.ok(t, http.MethodPost, "/indices", `{"name":"t"}`)
	s.ok(t, http.MethodPost, "/indices", `{"name":"w"}`)
	row := rowOf(16)
	var documents, metadata []string
	add := func(m string) {
		documents, metadata = append(documents, `{"embeddings":[`+strings.Repeat(row+",", 39)+row+`]}`), append(metadata, m)
	}
	for i := range 50 {
		add(fmt.Sprintf(`{"_id":"d%d","t":"%s","n":1,"image":"x.png"}`, i, strings.Repeat("x ", 10_000)))
	}
	for i := range 60 {
		add(fmt.Sprintf(`{"_id":"book#%d","t":"%s","_passage":{"of":"book","n":%d,"start":%d,"end":%d}}`, i, strings.Repeat("x ", 10_000), i, i, i+1))
	}
	s.ok(t, http.MethodPost, "/indices/a/update", `{"documents":[`+strings.Join(documents, ",")+`],"metadata":[`+strings.Join(metadata, ",")+`]}`)
	documents, metadata = nil, nil
	for i := range 20 {
		documents, metadata = append(documents, fmt.Sprintf(`"page %d of owls"`, i)), append(metadata, fmt.Sprintf(`{"_id":"d%d","text":"page %d of owls","t":"%s","n":1}`, i, i, strings.Repeat("x ", 10_000)))
	}
	s.ok(t, http.MethodPost, "/indices/t/update_with_encoding", `{"documents":[`+strings.Join(documents, ",")+`],"metadata":[`+strings.Join(metadata, ",")+`]}`)
	s.ok(t, http.MethodPost, "/indices", `{"name":"h"}`)
	for i := range 4 {
		s.ok(t, http.MethodPost, "/indices/h/update_with_encoding",
			fmt.Sprintf(`{"documents":["page of owls"],"metadata":[{"_id":"h%d","text":"page %s"}]}`, i, strings.Repeat("!", 900_000)))
	}
}

func (s *limitedService) ok(t *testing.T, method, path, body string) []byte {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+s.address+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Less(t, answer.StatusCode, 300, "%s %s: %s", method, path, text)
	return text
}

// slowly sends a request of so many clients at once. Each reads the status of its answer, and no
// more until all have one; it counts them. Status 0 is a connection that was cut.
func (s *limitedService) slowly(t *testing.T, method string, w worst, clients int) map[int]int {
	t.Helper()
	var mu sync.Mutex
	statuses := map[int]int{}
	small := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	var answered sync.WaitGroup
	connections := make([]net.Conn, clients)
	for i := range clients {
		answered.Go(func() {
			status := 0
			defer func() { mu.Lock(); statuses[status]++; mu.Unlock() }()
			c, err := small.Dial("tcp", s.address)
			if err != nil {
				return
			}
			connections[i] = c
			_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
			n := strconv.Itoa(i)
			body := strings.ReplaceAll(w.body, "{n}", n)
			var head bytes.Buffer
			fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n",
				method, strings.ReplaceAll(w.path, "{n}", n), cmp.Or(w.accept, "application/json, text/event-stream"), cmp.Or(w.media, "text/plain"), len(body))
			sent := make(chan struct{})
			go func() { // a refusal comes before the body is taken
				defer close(sent)
				if _, err := c.Write(head.Bytes()); err == nil {
					_, _ = io.WriteString(c, body)
				}
			}()
			var line [len("HTTP/1.1 200")]byte
			if _, err := io.ReadFull(c, line[:]); err == nil {
				status, _ = strconv.Atoi(string(line[len("HTTP/1.1 "):]))
			}
			<-sent
		})
	}
	answered.Wait()
	for _, c := range connections {
		if c != nil {
			_ = c.Close()
		}
	}
	return statuses
}

// watch looks how much memory the process has that is no page of a file, which the system can take
// back: every few milliseconds until the test ends.
func (s *limitedService) watch(t *testing.T) {
	done, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done); <-ended })
	go func() {
		defer close(ended)
		for tick := time.NewTicker(2 * time.Millisecond); ; {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
			if err != nil {
				t.Error(err)
				return
			}
			if _, rest, ok := strings.Cut(string(text), "RssAnon:"); ok {
				kilobytes, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				s.most.Store(max(s.most.Load(), kilobytes>>10))
			}
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	}()
}
