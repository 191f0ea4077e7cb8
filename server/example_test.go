package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/vectors"
)

// The service below a path of somebody's own server.
func Example() {
	dir, err := os.MkdirTemp("", "plaid-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	collections, err := store.Open(context.Background(), dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer collections.Close(context.Background())
	service, err := server.New(collections.Catalog(), nil, &server.Options{
		Limits: server.Limits{Rate: 100}, // and Tokens, where others can reach it
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/search/", http.StripPrefix("/search", service))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "my own pages") })
	web := httptest.NewServer(mux) // http.ListenAndServe(":8080", mux)
	defer web.Close()

	send := func(path, body string) {
		r, err := http.Post(web.URL+"/search"+path, "application/json", strings.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.StatusCode, string(text))
	}
	send("/indices", `{"name": "pets", "config": {"seed": 1}}`)
	send("/indices/pets/update", `{"documents": [{"embeddings": [[1, 0]]}, {"embeddings": [[0, 1]]}]}`)
	send("/indices/pets/metadata/query", `{"condition": "_id = ?", "parameters": ["1"]}`)
	// Output:
	// 200 {"name":"pets","config":{"nbits":4,"batch_size":50000,"seed":1,"start_from_scratch":999,"max_documents":null,"fts_tokenizer":"unicode61"},"message":"index declared; it can be searched when it has documents"}
	// 202 "2 documents stored in index pets"
	// 200 {"document_ids":[1],"count":1}
}

// An index that the program has open, served beside what it does with it itself. With Write
// set, and an index opened to be changed, documents could be added over HTTP, too.
func ExampleNew_openIndex() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "plaid-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "pets.plaid")
	docs, err := vectors.FromDocuments(2, []vectors.Document{{ID: "cat", Tokens: []float32{1, 0}}, {ID: "dog", Tokens: []float32{0, 1}}})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := index.Build(ctx, path, docs, nil); err != nil {
		log.Fatal(err)
	}
	ix, err := index.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ix.Close()

	opened, err := store.FromIndexes(ctx, map[string]store.OpenIndex{"pets": {Index: ix}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer opened.Close(ctx)
	service, err := server.New(opened.Catalog(), nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range []*http.Request{
		httptest.NewRequest("POST", "http://localhost/indices/pets/search", strings.NewReader(`{"queries": [{"embeddings": [[0, 1]]}], "params": {"top_k": 1}}`)),
		httptest.NewRequest("DELETE", "http://localhost/indices/pets/documents", strings.NewReader(`{"ids": ["dog"]}`)),
	} {
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		var answer struct {
			Results []struct {
				Documents []uint64 `json:"document_ids"`
			} `json:"results"`
			Message string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %v %q\n", w.Code, answer.Results, answer.Message)
	}
	// Output:
	// 200 [{[1]}] ""
	// 400 [] "collection \"pets\": index was opened read-only"
}
