package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/plaid-ir/plaid/server/mcp"
)

// reply is an answer to a message, or what a refused one is told.
type reply struct {
	ID     json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
	}
}

const (
	hello   = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	isThere = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// overPipe are the answers to lines, after those that begin a session.
func overPipe(t require.TestingT, service *mcp.Service, lines ...string) (replies []reply) {
	var out bytes.Buffer
	in := io.NopCloser(strings.NewReader(strings.Join(append([]string{hello, isThere}, lines...), "\n")))
	require.NoError(t, mcp.New(service, "1").Run(context.Background(), in, noClose{&out}))
	scan := bufio.NewScanner(&out)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var r reply
		require.True(t, json.Valid(scan.Bytes()), scan.Text())
		require.NoError(t, json.Unmarshal(scan.Bytes(), &r))
		if string(r.ID) != `"hello"` {
			replies = append(replies, r)
		}
	}
	return replies
}

type noClose struct{ io.Writer }

func (noClose) Close() error { return nil }

// frames are lines, and what is to be answered: no code is a result, and no id nothing at all.
var frames = []struct {
	name, line, id string
	code           int
}{
	{"cut", `{bad`, "null", -32700},
	{"words", `hello`, "null", -32700},
	{"byte order mark", "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "null", -32700},
	{"trailing comma", `{"jsonrpc":"2.0","id":1,"method":"ping",}`, "null", -32700},
	{"single quotes", `{'jsonrpc':'2.0','id':1,'method':'ping'}`, "null", -32700},
	{"NaN", `{"jsonrpc":"2.0","id":NaN,"method":"ping"}`, "null", -32700},
	{"two on a line", `{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}`, "null", -32700},
	{"no UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"\xff\"}}", "1", -32700},
	{"no UTF-8 in the id", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}", "null", -32700},
	{"half a character", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\ud83d"}}`, "1", -32600},
	{"NUL", "{\"jsonrpc\":\"2.0\",\"id\":1,\x00\"method\":\"ping\"}", "null", -32700},
	{"too deep", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`, "1", -32600},
	{"no version", `{"id":1,"method":"ping"}`, "1", -32600},
	{"old version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, "1", -32600},
	{"version as a number", `{"jsonrpc":2.0,"id":1,"method":"ping"}`, "1", -32600},
	{"other names", `{"JSONRPC":"2.0","ID":1,"METHOD":"ping"}`, "null", -32600},
	{"a list", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "null", -32600},
	{"an empty list", `[]`, "null", -32600},
	{"a number", `7`, "null", -32600},
	{"a text", `"ping"`, "null", -32600},
	{"null", `null`, "null", -32600},
	{"an empty object", `{}`, "null", -32600},
	{"no method", `{"jsonrpc":"2.0","id":1}`, "1", -32600},
	{"method as a number", `{"jsonrpc":"2.0","id":1,"method":7}`, "1", -32600},
	{"method null", `{"jsonrpc":"2.0","id":1,"method":null}`, "1", -32600},
	{"id null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", -32600},
	{"id true", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, "null", -32600},
	{"id a list", `{"jsonrpc":"2.0","id":[1],"method":"ping"}`, "null", -32600},
	{"id an object", `{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, "null", -32600},
	{"no id", `{"jsonrpc":"2.0","method":"ping"}`, "null", -32600},
	{"a notification with an id", `{"jsonrpc":"2.0","id":1,"method":"notifications/initialized"}`, "1", -32600},
	{"unknown method", `{"jsonrpc":"2.0","id":1,"method":"tools/fly"}`, "1", -32601},
	{"empty method", `{"jsonrpc":"2.0","id":1,"method":""}`, "1", -32600},
	{"listen", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}`, "1", -32601},
	{"unknown tool", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fly"}}`, "1", -32602},
	{"params a list", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["list"]}`, "1", -32602},
	{"params a number", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":5}`, "1", -32602},
	{"unknown notification", `{"jsonrpc":"2.0","method":"notifications/fly"}`, "", 0},
	{"a notification with a list", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":[1]}`, "", 0},
	{"cancelled, never called", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345678901234567890}}`, "", 0},
	{"cancelled without an id", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`, "", 0},
	{"an answer", `{"jsonrpc":"2.0","id":1,"result":{}}`, "", 0},
	{"an answer that is an error", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`, "", 0},
	{"white space", ` {"jsonrpc" : "2.0" , "id" : 1 , "method" : "ping" } ` + "\r", "1", 0},
	{"escapes in names", `{"jsonrpc":"2.0","\u0069d":1,"method":"pin\u0067"}`, "1", 0},
	{"params null", `{"jsonrpc":"2.0","id":1,"method":"ping","params":null}`, "1", 0},
	{"fields of others", `{"jsonrpc":"2.0","id":1,"method":"ping","trace":null}`, "1", 0},
	{"progress token, large", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list","_meta":{"progressToken":12345678901234567890}}}`, "1", 0},
	{"progress token, fraction", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list","_meta":{"progressToken":1.5}}}`, "1", 0},
	{"progress token, an object", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list","_meta":{"progressToken":{"a":[]}}}}`, "1", 0},
}

// ids come back as they were sent.
var ids = []string{`12345678901234567890`, `-9223372036854775809`, `9007199254740993`, `1.5`, `1.0`, `1e3`, `-0`, `0`, `0.1000`, `""`, `"a"`, `"\u0061"`,
	`"1"`, `"a\/b<>&\u2028"`, `"ü\n\"\\"`, `"\ud83d\ude00"`, `"😀"`, `"` + strings.Repeat("x", 10_000) + `"`, `1` + strings.Repeat("0", 300)}

// Each message that is none is told so, and the next one is answered: over a pipe and over HTTP.
func TestFrames(t *testing.T) {
	s := newService(t, false, nil)
	check := func(t *testing.T, id string, code int, replies []reply) {
		t.Helper()
		if id == "" {
			require.Empty(t, replies)
			return
		}
		require.Len(t, replies, 1)
		require.Equal(t, id, string(replies[0].ID))
		if code == 0 {
			require.Nil(t, replies[0].Error)
			require.NotEmpty(t, replies[0].Result)
			return
		}
		require.NotNil(t, replies[0].Error)
		require.Equal(t, code, replies[0].Error.Code, replies[0].Error.Message)
		require.NotEmpty(t, replies[0].Error.Message)
	}
	ask := func(t *testing.T, line string) (replies []reply, status int) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, message(t, "/mcp", line))
		if w.Body.Len() > 0 {
			var r reply
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r), w.Body.String())
			replies = append(replies, r)
		}
		return replies, w.Code
	}
	for _, x := range frames {
		t.Run(x.name, func(t *testing.T) {
			replies := overPipe(t, mcp.NewInProcess(s), x.line, `{"jsonrpc":"2.0","id":"after","method":"ping"}`)
			var own []reply
			alive := false
			for _, r := range replies {
				if string(r.ID) == `"after"` {
					alive = r.Error == nil
				} else {
					own = append(own, r)
				}
			}
			require.True(t, alive)
			check(t, x.id, x.code, own)

			got, status := ask(t, x.line)
			check(t, x.id, x.code, got)
			switch {
			case x.id == "":
				require.Equal(t, http.StatusAccepted, status)
			case x.code == 0:
				require.Equal(t, http.StatusOK, status)
			}
		})
	}
	for _, id := range ids {
		line := `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`
		check(t, id, 0, overPipe(t, mcp.NewInProcess(s), line))
		got, _ := ask(t, line)
		check(t, id, 0, got)
		got, _ = ask(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"list"}}`)
		check(t, id, 0, got)
		got, _ = ask(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call"}`)
		check(t, id, -32600, got)
	}
	// One that is too long names its id first, as a rule.
	long := strings.Repeat("x", 300<<10)
	check(t, "1.5", -32600, overPipe(t, mcp.NewInProcess(s), `{"jsonrpc":"2.0","id":1.5,"method":"tools/call","params":{"name":"`+long+`"}}`))
	check(t, "null", -32600, overPipe(t, mcp.NewInProcess(s), `{"jsonrpc":"2.0","params":{"name":"`+long+`"},"id":1.5,"method":"tools/call"}`))
	check(t, "null", -32600, overPipe(t, mcp.NewInProcess(s), long+long+long))
	got, status := ask(t, `{"jsonrpc":"2.0","id":1.5,"method":"`+long+`"}`)
	check(t, "null", -32600, got)
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
}

// A line in UTF-16 is none, and the half of its line feed that stands before the next one is no part of that.
func TestWideLine(t *testing.T) {
	s := newService(t, false, nil)
	wide := strings.Join(strings.Split(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, ""), "\x00") + "\x00"
	replies := overPipe(t, mcp.NewInProcess(s), wide, "\x00"+`{"jsonrpc":"2.0","id":2,"method":"ping"}`, "\x00"+`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	require.Len(t, replies, 3)
	codes := map[string]int{}
	for _, r := range replies {
		if r.Error != nil {
			codes[string(r.ID)] += r.Error.Code
		} else {
			codes[string(r.ID)] = 0
		}
	}
	require.Equal(t, map[string]int{"null": -32700 * 2, "2": 0}, codes)
}

// Whole numbers may be written with a point or an exponent, and be greater than any index is.
func TestWholeNumbers(t *testing.T) {
	s := newService(t, true, nil)
	for _, x := range []struct{ tool, args, want string }{
		{"search", `"query":"dogs","k":1.0,"offset":0.0,"max_tokens":1e3`, `"hits":[{"id":"dog"`},
		{"search", `"query":"dogs","offset":1e308`, `"hits":[]`},
		{"search", `"query":"dogs","offset":18446744073709551616`, `"hits":[]`},
		{"search", `"query":"dogs","k":1e308`, "k is 9223372036854775807; 1 to 20 are possible"},
		{"search", `"query":"dogs","offset":-1e308`, "offset is -9223372036854775808"},
		{"search", `"query":"dogs","k":1.5`, "integer"},
		{"get", `"ids":["dog"],"start":0.0,"max_tokens":1e308`, `"documents":[{"id":"dog"`},
		{"similar", `"id":"dog","k":2.0`, `"hits":[{`},
	} {
		replies := overPipe(t, mcp.NewInProcess(s), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+x.tool+`","arguments":{"index":"notes",`+x.args+`}}}`)
		require.Len(t, replies, 1)
		var result struct{ Content []struct{ Text string } }
		require.NoError(t, json.Unmarshal(replies[0].Result, &result), x.args)
		require.Contains(t, result.Content[0].Text, x.want, x.args)
	}
}

// A URI with parameters that cannot be is a mistake of the agent's.
func TestBadURI(t *testing.T) {
	s := newService(t, false, nil)
	for _, uri := range []string{"plaid://notes/dog?passage=x", "plaid://notes/dog?start=-1", "plaid://notes/dog?passage=9"} {
		replies := overPipe(t, mcp.NewInProcess(s), `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"`+uri+`"}}`)
		require.Len(t, replies, 1)
		require.NotNil(t, replies[0].Error, uri)
		require.Equal(t, -32602, replies[0].Error.Code, replies[0].Error.Message)
	}
}

// Null in the place of what may be left out leaves it out, in each tool and everywhere else.
func TestNullIsAbsent(t *testing.T) {
	s := newService(t, true, nil)
	var lines []string
	add := func(method, params string) {
		lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, len(lines), method, params))
	}
	add("tools/call", `{"name":"list","arguments":null,"_meta":null}`)
	add("tools/call", `{"name":"search","arguments":{"index":"notes","query":"dogs","condition":null,"k":null,"mode":null,"group":null,"like":null,"unlike":null,"max_tokens":null},"_meta":{"progressToken":null}}`)
	add("tools/call", `{"name":"get","arguments":{"index":"notes","ids":["dog"],"start":null,"max_tokens":null}}`)
	add("tools/call", `{"name":"similar","arguments":{"index":"notes","id":"dog","condition":null,"k":null,"max_tokens":null}}`)
	add("tools/call", `{"name":"explain","arguments":{"index":"notes","query":"dogs","id":"dog"}}`)
	add("tools/list", `{"cursor":null}`)
	add("resources/list", `{"cursor":null,"_meta":null}`)
	add("resources/templates/list", `{"cursor":null}`)
	add("resources/read", `{"uri":"plaid://notes/dog","_meta":null}`)
	add("prompts/list", `{"cursor":null}`)
	n := len(lines)
	replies := overPipe(t, mcp.NewInProcess(s), lines...)
	for _, line := range lines {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, message(t, "/mcp", line))
		var r reply
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &r))
		replies = append(replies, r)
	}
	require.Len(t, replies, 2*n)
	for _, r := range replies {
		require.Nil(t, r.Error, "%s %v", r.ID, r.Error)
		require.NotContains(t, string(r.Result), `"isError":true`, string(r.ID))
	}
	// What a tool needs is said to be missing.
	replies = overPipe(t, mcp.NewInProcess(s), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"index":null,"query":null}}}`)
	require.Contains(t, string(replies[0].Result), "query")
	require.Contains(t, string(replies[0].Result), `"isError":true`)
	// Of a list nothing is left out.
	replies = overPipe(t, mcp.NewInProcess(s), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get","arguments":{"index":"notes","ids":["dog",null]}}}`)
	require.Contains(t, string(replies[0].Result), `"isError":true`)
}

// A call that was cancelled by the id that it has, whatever that is, ends, and is not answered.
func TestCancelled(t *testing.T) {
	for _, id := range ids {
		began, ended := make(chan struct{}), make(chan struct{})
		service := mcp.NewInProcess(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(began)
			<-r.Context().Done()
			close(ended)
		}))
		in, toServer := io.Pipe()
		var out bytes.Buffer
		done := make(chan error, 1)
		go func() { done <- mcp.New(service, "1").Run(context.Background(), in, noClose{&out}) }()
		send := func(text string) {
			_, err := io.WriteString(toServer, text+"\n")
			require.NoError(t, err)
		}
		send(hello)
		send(isThere)
		send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"get","arguments":{"index":"x","ids":["a"]}}}`)
		<-began
		send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":null}}`)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("%.40s: the call goes on", id)
		}
		send(`{"jsonrpc":"2.0","id":"after","method":"ping"}`)
		require.NoError(t, toServer.Close())
		require.NoError(t, <-done)
		require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
		require.Contains(t, out.String(), `"id":"after"`)
	}
}

// Whatever lies between them, each good request is answered once, under its own id.
func TestFramesModel(t *testing.T) {
	s := newService(t, false, nil)
	bad := rapid.OneOf(
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return strings.ReplaceAll(string(b), "\n", "") }),
		rapid.Custom(func(t *rapid.T) string { // a good one, with some bytes changed
			line := []byte(frames[rapid.IntRange(0, len(frames)-1).Draw(t, "frame")].line)
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				if c := rapid.Byte().Draw(t, "byte"); c != '\n' && len(line) > 0 {
					line[rapid.IntRange(0, len(line)-1).Draw(t, "at")] = c
				}
			}
			return string(line)
		}),
		rapid.Just(strings.Repeat("[", 300<<10)),
	)
	rapid.Check(t, func(t *rapid.T) {
		want := map[string]int{}
		var lines []string
		for range rapid.IntRange(1, 12).Draw(t, "lines") {
			if rapid.Bool().Draw(t, "bad") {
				lines = append(lines, bad.Draw(t, "line"))
				continue
			}
			id := rapid.OneOf(
				rapid.Map(rapid.Int64(), func(n int64) string { return "-1" + strings.TrimPrefix(strconv.FormatInt(n, 10), "-") + "000007" }),
				rapid.Map(rapid.Float64Range(-1e9, 1e9), func(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) + "7" }),
				rapid.Map(rapid.String(), func(text string) string { b, _ := json.Marshal("mine " + text); return string(b) }),
			).Draw(t, "id")
			want[id]++
			lines = append(lines, `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)
		}
		got := map[string]int{}
		for _, r := range overPipe(t, mcp.NewInProcess(s), lines...) {
			if want[string(r.ID)] > 0 {
				require.Nil(t, r.Error)
				got[string(r.ID)]++
			}
		}
		require.Equal(t, want, got)
	})
}
