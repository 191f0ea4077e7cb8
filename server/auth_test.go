package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection"
	"github.com/plaid-ir/plaid/server"
)

func TestParseTokens(t *testing.T) {
	tokens, err := server.ParseTokens(strings.NewReader("# comment\n\n a read "+readSecret+"\nb admin sha256:"+strings.Repeat("0f", 32)+"\r\n"), "f")
	require.NoError(t, err)
	require.Len(t, tokens, 2)
	require.Equal(t, server.NewToken("a", server.Read, readSecret), tokens[0])
	tokens, err = server.ParseTokens(strings.NewReader("a read,write:notes-*,admin:tmp "+readSecret+" documents=10 bytes=2KiB rate=1.5"), "f")
	require.NoError(t, err)
	want := server.NewToken("a", server.Read, readSecret)
	want.Grants = []server.Grant{{Permission: server.Write, Pattern: "notes-*"}, {Permission: server.Admin, Pattern: "tmp"}}
	want.Quota = server.Quota{Documents: 10, Bytes: 2048, Rate: 1.5}
	require.Equal(t, server.Tokens{want}, tokens)
	for text, says := range map[string]string{
		"":                                    "none",
		"a read":                              "line 1",
		"a root " + readSecret:                "root",
		"a read short":                        "16",
		"a read sha256:00":                    "hexadecimal",
		"a read " + readSecret + " x":         "setting 1",
		"a read x " + readSecret:              "setting 1",
		"a read:* " + readSecret + " bytes=0": "setting 1",
		"a read:a/b " + readSecret:            "pattern",
		"a write:[a] " + readSecret:           "pattern",
		"a read:*,root:b " + readSecret:       "root",
		"a read " + readSecret + "\na write " + writeSecret: "twice",
	} {
		_, err := server.ParseTokens(strings.NewReader(text), "tokens.txt")
		require.ErrorIs(t, err, server.ErrTokens)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "tokens.txt")
		require.NotContains(t, err.Error(), readSecret)
	}
}

func FuzzParseTokens(f *testing.F) {
	f.Add("a read " + readSecret)
	f.Add("b write:x*,read:? " + readSecret + " rate=1e3")
	f.Add("b admin sha256:" + strings.Repeat("0f", 32))
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := server.ParseTokens(strings.NewReader(text), "f")
		if err == nil && len(tokens) == 0 {
			t.Fatal("no tokens and no error")
		}
	})
}

func FuzzParseIndexQuota(f *testing.F) {
	for _, text := range []string{"a documents=1", "a-* bytes=1GiB rate=2.5", "? rate=1e-9", "* documents=0", "a/b rate=1", "a"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := server.ParseIndexQuota(text)
		if err == nil && (u.Documents == 0 && u.Bytes <= 0 && !(u.Rate > 0) || u.Pattern == "" || strings.ContainsAny(u.Pattern, "[/\\ ")) {
			t.Fatalf("%q is %+v", text, u)
		}
	})
}

// bearers is a service with the tokens of a list, and asks it with the one of a name.
func bearers(t *testing.T, o *server.Options, lines ...string) (*service, func(name, method, path string, body any) *reply) {
	t.Helper()
	var text strings.Builder
	for _, line := range lines { // NAME GRANTS QUOTA…
		words := strings.Fields(line)
		fmt.Fprintln(&text, words[0], words[1], secretOf(words[0]), strings.Join(words[2:], " "))
	}
	tokens, err := server.ParseTokens(strings.NewReader(text.String()), "test")
	require.NoError(t, err)
	o.Tokens = tokens
	s := start(t, words{}, o)
	return s, func(name, method, path string, body any) *reply {
		t.Helper()
		return s.send(t, method, path, body, "Authorization: Bearer "+secretOf(name))
	}
}

func secretOf(name string) string { return name + strings.Repeat("-secret", 3) }

// A token that is for some indexes reads, writes and administers these, whether they are
// there or not, and sees no others.
func TestTokensByIndex(t *testing.T) {
	_, as := bearers(t, &server.Options{}, "root admin", "tenant read:shared,write:a-*,admin:a-tmp?", "reader read:a-docs", "all read:*")
	for _, name := range []string{"shared", "a-docs", "a-tmp1", "b-docs"} {
		require.Equal(t, 200, as("root", "POST", "/indices", object{"name": name}).status)
		require.Equal(t, 202, as("root", "POST", "/indices/"+name+"/update", object{"documents": list{query("cats sleep")}}).status)
	}
	search := object{"queries": list{query("cats")}}
	more := object{"documents": list{query("more")}}
	for _, c := range []struct {
		who, method, path string
		body              any
		want              int
	}{
		{"tenant", "POST", "/indices/shared/search", search, 200},
		{"tenant", "POST", "/indices/a-docs/search", search, 200},
		{"tenant", "POST", "/indices/b-docs/search", search, 403},
		{"tenant", "POST", "/indices/nosuch/search", search, 403}, // nobody learns what is there
		{"tenant", "GET", "/indices/b-docs/stats", nil, 403},
		{"tenant", "POST", "/indices/a-docs/update", more, 202},
		{"tenant", "POST", "/indices/shared/update", more, 403},
		{"tenant", "DELETE", "/indices/shared/documents", object{"ids": list{"0"}}, 403},
		{"tenant", "POST", "/indices/shared/metadata/update", object{"condition": "_id = '0'", "updates": object{}}, 403},
		{"tenant", "GET", "/indices/a-docs/backup", nil, 403},
		{"tenant", "GET", "/indices/a-tmp1/backup", nil, 200},
		{"tenant", "POST", "/indices", object{"name": "a-new"}, 403},
		{"tenant", "POST", "/indices", object{"name": "a-tmp2"}, 200},
		{"tenant", "POST", "/indices", object{"name": "a-tmp22"}, 403},
		{"tenant", "DELETE", "/indices/a-tmp2", nil, 200},
		{"tenant", "DELETE", "/indices/a-docs", nil, 403},
		{"tenant", "PUT", "/indices/b-new/backup", "x", 403},
		{"tenant", "POST", "/encode", object{"texts": list{"a"}, "input_type": "query"}, 200},
		{"tenant", "GET", "/metrics", nil, 403}, // of all indexes
		{"all", "GET", "/metrics", nil, 200},
		{"reader", "POST", "/indices", object{"name": "a-docs"}, 403},
		{"reader", "POST", "/indices/a-docs/search", search, 200},
		{"reader", "POST", "/indices/a-docs/update", more, 403},
	} {
		r := as(c.who, c.method, c.path, c.body)
		require.Equal(t, c.want, r.status, "%s %s %s: %s", c.who, c.method, c.path, r.body)
		if c.want == 403 {
			isProblem(t, r, server.CodeForbidden)
		}
	}
	for who, want := range map[string][]string{"root": {"a-docs", "a-tmp1", "b-docs", "shared"}, "tenant": {"a-docs", "a-tmp1", "shared"}, "reader": {"a-docs"}, "all": {"a-docs", "a-tmp1", "b-docs", "shared"}} {
		var names []string
		as(who, "GET", "/indices", nil).json(t, &names)
		require.Equal(t, want, names, who)
		var health struct {
			Loaded  int `json:"loaded_indices"`
			Indices []struct{ Name string }
		}
		as(who, "GET", "/health", nil).json(t, &health)
		require.Equal(t, len(want), health.Loaded)
		for i := range want {
			require.Equal(t, want[i], health.Indices[i].Name)
		}
	}
}

// A quota of documents holds for what a token may write together, or for an index, however
// many updates come at once; what takes the place of others is none more.
func TestQuotas(t *testing.T) {
	s, as := bearers(t, &server.Options{Quotas: []server.IndexQuota{{Pattern: "small*", Quota: server.Quota{Documents: 2}}, {Pattern: "full", Quota: server.Quota{Bytes: 1}}}},
		"root admin", "tenant write:t-* documents=10", "other write:t-*")
	for _, name := range []string{"t-1", "t-2", "small", "full", "free"} {
		require.Equal(t, 200, as("root", "POST", "/indices", object{"name": name}).status)
	}
	update := func(who, index string, ids ...string) *reply {
		var docs, metadata list
		for _, id := range ids {
			docs, metadata = append(docs, query("cats "+id)), append(metadata, object{"_id": id})
		}
		return as(who, "POST", "/indices/"+index+"/update", object{"documents": docs, "metadata": metadata})
	}
	refused := func(r *reply) {
		t.Helper()
		require.Equal(t, 403, r.status, r.body)
		isProblem(t, r, server.CodeQuota)
	}
	var wg sync.WaitGroup
	statuses := make([]int, 40)
	for i := range statuses {
		wg.Go(func() { statuses[i] = update("tenant", fmt.Sprintf("t-%d", 1+i%2), fmt.Sprint("d", i)).status })
	}
	wg.Wait()
	taken := 0
	for _, status := range statuses {
		if status == 202 {
			taken++
		} else {
			require.Equal(t, 403, status)
		}
	}
	var one, two struct {
		Documents int `json:"num_documents"`
	}
	as("root", "GET", "/indices/t-1", nil).json(t, &one)
	as("root", "GET", "/indices/t-2", nil).json(t, &two)
	require.Equal(t, taken, one.Documents+two.Documents)
	require.LessOrEqual(t, taken, 10, "never more, whatever runs at once")
	// What is refused only for updates that run is told when to come again.
	require.Equal(t, 200, as("root", "POST", "/indices", object{"name": "small2"}).status)
	stored := server.Storing(s.Server, "small2", 2)
	r := update("root", "small2", "beside")
	refused(r)
	require.Equal(t, "1", r.header.Get("Retry-After"))
	stored()
	require.Equal(t, 202, update("root", "small2", "beside").status)
	r = update("root", "small2", "b", "c")
	refused(r)
	require.Empty(t, r.header.Get("Retry-After"), "waiting would not help")
	for i := taken; i < 10; i++ { // what was refused beside others fits alone
		require.Equal(t, 202, update("tenant", "t-1", fmt.Sprint("x", i)).status)
	}
	refused(update("tenant", "t-2", "another"))
	require.Equal(t, 202, update("other", "t-1", "of another token").status)
	require.Equal(t, 202, as("tenant", "DELETE", "/indices/t-1/documents", object{"ids": list{"of another token"}}).status)
	var ids struct {
		Metadata []struct {
			ID string `json:"_id"`
		}
	}
	as("root", "GET", "/indices/t-1/metadata", nil).json(t, &ids)
	require.Equal(t, 202, update("tenant", "t-1", ids.Metadata[0].ID).status, "in the place of another")
	refused(update("tenant", "t-1", ids.Metadata[0].ID, "and a new one"))

	refused(update("root", "small", "a", "b", "c"))
	require.Equal(t, 202, update("root", "small", "a", "b").status)
	refused(update("root", "small", "c"))
	refused(s.send(t, "PUT", "/indices/small-too/backup", "x", "Content-Type: application/octet-stream", "Authorization: Bearer "+secretOf("root")))
	require.Equal(t, 200, as("root", "PUT", "/indices/small/config", object{"max_documents": 2}).status)
	require.Equal(t, 202, update("root", "small", "c").status, "pushes the oldest out")

	require.Equal(t, 202, update("root", "full", "a").status, "the first one begins below it")
	refused(update("root", "full", "a"))
	refused(as("root", "POST", "/indices/full/metadata/update", object{"condition": "_id = 'a'", "updates": object{"x": 1}}))
	require.Equal(t, 202, as("root", "DELETE", "/indices/full/documents", object{"ids": list{"a"}}).status)
	require.Equal(t, 202, update("root", "free", "a", "b", "c").status)
}

func TestQuotaOfRequests(t *testing.T) {
	_, as := bearers(t, &server.Options{Quotas: []server.IndexQuota{{Pattern: "slow", Quota: server.Quota{Rate: 1e-3}}}}, "root admin", "few read rate=0.001")
	require.Equal(t, 200, as("few", "GET", "/indices", nil).status)
	r := as("few", "GET", "/indices", nil)
	require.Equal(t, 429, r.status)
	require.NotEmpty(t, isProblem(t, r, server.CodeRateLimited).RetryAfter)
	for range 5 {
		require.Equal(t, 200, as("root", "GET", "/indices", nil).status)
	}
	require.Equal(t, 404, as("root", "GET", "/indices/slow", nil).status)
	require.Equal(t, 429, as("root", "GET", "/indices/slow", nil).status)
	require.Equal(t, 404, as("root", "GET", "/indices/other", nil).status)
}

// A quota of all indexes is none of what is asked of no index, such as probes; and an index
// with quotas by several patterns keeps each of them.
func TestQuotasByPattern(t *testing.T) {
	s, as := bearers(t, &server.Options{Quotas: []server.IndexQuota{
		{Pattern: "*", Quota: server.Quota{Documents: 100, Rate: 1e-3}}, {Pattern: "few*", Quota: server.Quota{Documents: 3}},
	}}, "root admin")
	for range 3 {
		require.Equal(t, 200, s.send(t, "GET", "/livez", nil).status)
		require.Equal(t, 200, as("root", "GET", "/indices", nil).status)
		require.Equal(t, 200, as("root", "GET", "/health", nil).status)
	}
	require.Equal(t, 200, as("root", "POST", "/indices", object{"name": "few"}).status)
	r := as("root", "POST", "/indices/few/update", object{"documents": list{query("cats"), query("dogs"), query("eels")}})
	require.Equal(t, 202, r.status, r.body)
	require.Equal(t, 429, as("root", "GET", "/indices/few", nil).status)
}

// dropping is a set in which a collection is dropped whenever it is counted.
type dropping struct {
	collection.Set
	name string
}

func (d dropping) Names() []string { return append(d.Set.Names(), d.name) }

func (d dropping) Get(name string) (collection.Collection, error) {
	if name == d.name {
		return dropped{}, nil
	}
	return d.Set.Get(name)
}

type dropped struct{ collection.Collection }

func (dropped) Err() error { return nil }

func (dropped) Stats(context.Context) (collection.Stats, error) {
	return collection.Stats{}, fmt.Errorf("%w: was dropped", collection.ErrUnknown)
}

// What a quota counts may be dropped meanwhile: that is no error of an update of another index.
func TestQuotasCountWhatIsThere(t *testing.T) {
	tokens, err := server.ParseTokens(strings.NewReader("a admin "+writeSecret+" documents=1"), "test")
	require.NoError(t, err)
	s, err := server.New(dropping{openStore(t, nil).Set(), "zoo"}, words{}, &server.Options{Tokens: tokens})
	require.NoError(t, err)
	as := &service{Server: s}
	token := "Authorization: Bearer " + writeSecret
	require.Equal(t, 200, as.send(t, "POST", "/indices", object{"name": "pets"}, token).status)
	r := as.send(t, "POST", "/indices/pets/update", object{"documents": list{query("cats")}}, token)
	require.Equal(t, 202, r.status, r.body)
}

// entering is a set whose updates say that they run, and wait.
type entering struct {
	collection.Set
	entered, free chan struct{}
}

func (e entering) Get(name string) (collection.Collection, error) {
	c, err := e.Set.Get(name)
	return waiting{c, e}, err
}

type waiting struct {
	collection.Collection
	e entering
}

func (w waiting) Update(ctx context.Context, docs []collection.Document, o collection.UpdateOptions) (collection.Receipt, error) {
	w.e.entered <- struct{}{}
	<-w.e.free
	return w.Collection.Update(ctx, docs, o)
}

// Updates by several tokens that run at once count for the quotas of each.
func TestQuotasOfSeveralTokens(t *testing.T) {
	lines := "a admin " + writeSecret + " documents=3\nb admin " + readSecret + " documents=3"
	tokens, err := server.ParseTokens(strings.NewReader(lines), "test")
	require.NoError(t, err)
	e := entering{openStore(t, nil).Set(), make(chan struct{}, 2), make(chan struct{})}
	s, err := server.New(e, words{}, &server.Options{Tokens: tokens})
	require.NoError(t, err)
	as := &service{Server: s}
	require.Equal(t, 200, as.send(t, "POST", "/indices", object{"name": "pets"}, "Authorization: Bearer "+writeSecret).status)
	update := func(secret string) *reply {
		return as.send(t, "POST", "/indices/pets/update", object{"documents": list{query("cats"), query("dogs")}}, "Authorization: Bearer "+secret)
	}
	replies := make(chan *reply, 1)
	go func() { replies <- update(writeSecret) }()
	<-e.entered
	others := make(chan *reply, 1)
	go func() { others <- update(readSecret) }()
	select {
	case <-e.entered:
		t.Error("the update of the other token runs")
	case r := <-others:
		require.Equal(t, 403, r.status, r.body)
	}
	close(e.free)
	require.Equal(t, 202, (<-replies).status)
}

// Who asks learns what its own token allows, and an admin of all indexes what all do; no
// answer has anything of a secret.
func TestAccess(t *testing.T) {
	tokens, err := server.ParseTokens(strings.NewReader(`
ops   admin                a-secret-of-operators
pets  read:pets,write:p-*  a-secret-of-pets-readers rate=50
`), "test")
	require.NoError(t, err)
	s := start(t, nil, &server.Options{Tokens: tokens})
	ask := func(path, secret string) *reply { return s.send(t, "GET", path, nil, "Authorization: Bearer "+secret) }

	all := ask("/tokens", "a-secret-of-operators")
	require.JSONEq(t, `{"needed": true, "own": {"name": "ops", "permission": "admin"}, "tokens": [
		{"name": "ops", "permission": "admin"},
		{"name": "pets", "permission": "none", "rate": 50, "grants": [{"permission": "read", "pattern": "pets"}, {"permission": "write", "pattern": "p-*"}]}]}`, all.body)
	own := ask("/tokens", "a-secret-of-pets-readers")
	require.Equal(t, 200, own.status, own.body)
	require.NotContains(t, own.body, "ops")
	require.Contains(t, own.body, `"name":"pets"`)
	for _, r := range []*reply{all, own} {
		require.NotContains(t, r.body, "secret")
	}
	require.Equal(t, 401, s.send(t, "GET", "/tokens", nil).status)
	require.Equal(t, 403, ask("/nodes", "a-secret-of-pets-readers").status)
	s.refused(t, 400, server.CodeNotSupported, "GET", "/nodes", nil, "Authorization: Bearer a-secret-of-operators")

	open := start(t, nil, nil)
	require.JSONEq(t, `{"needed": false}`, open.send(t, "GET", "/tokens", nil).body)
}

// The answer says what took the time of a request.
func TestServerTiming(t *testing.T) {
	s := startPets(t)
	r := s.send(t, "POST", "/indices/pets/search_with_encoding", object{"queries": list{"cats", "dogs"}, "filter_condition": "year > 2000"})
	require.Equal(t, 200, r.status, r.body)
	require.Regexp(t, `^encode;dur=[0-9.]+, select;dur=[0-9.]+, search;dur=[0-9.]+, total;dur=[0-9.]+$`, r.header.Get("Server-Timing"))
}
