package server_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/plaid-ir/plaid/server"
	"github.com/plaid-ir/plaid/server/store"
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
	service, err := server.New(collections, nil, &server.Options{
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
