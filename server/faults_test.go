package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/collection/store"
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// sendCut is send of a request whose answer may be cut off: a backup that is not whole.
func sendCut(s *service, t *testing.T, method, path string, body any, headers ...string) (r *reply) {
	defer func() {
		if fault := recover(); fault != nil && fault != http.ErrAbortHandler {
			panic(fault)
		} else if fault != nil {
			r = &reply{}
		}
	}()
	return s.send(t, method, path, body, headers...)
}

// An index that is dropped while others use it is not there, or was there; never a fault.
func TestDroppingBeside(t *testing.T) {
	s := startPets(t)
	backup := s.send(t, "GET", "/indices/pets/backup", nil).body
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	bad := make(chan string, 100)
	use := func(method, path string, body any, media string) {
		wg.Go(func() {
			for ctx.Err() == nil {
				r := sendCut(s, t, method, path, body, "Content-Type: "+media)
				if r.status >= 500 && r.status != 503 {
					select {
					case bad <- fmt.Sprintf("%s %s: %d %s", method, path, r.status, r.body):
					default:
					}
				}
			}
		})
	}
	const plain = "application/json"
	use("POST", "/indices/pets/search", object{"queries": list{query("cats")}}, plain)
	use("POST", "/indices/pets/search", object{"text_query": list{"cats"}}, plain)
	use("GET", "/indices/pets/metadata", nil, plain)
	use("GET", "/indices/pets/documents?id=a&vectors=json", nil, plain)
	use("PUT", "/indices/pets/backup", backup, "application/octet-stream")
	use("GET", "/indices/pets/backup", nil, plain)
	for range effort.Cases(10, 40) {
		if r := s.send(t, "PUT", "/indices/pets/backup", backup, "Content-Type: application/octet-stream"); r.status == 200 {
			s.send(t, "POST", "/indices/pets/search", object{"queries": list{query("cats")}})
		}
		if r := s.send(t, "DELETE", "/indices/pets", nil); r.status != 200 && r.status != 409 {
			bad <- r.body
		}
	}
	stop()
	wg.Wait()
	close(bad)
	for text := range bad {
		t.Error(text)
	}
}

// A panic beside a request is a fault of what it was about.
func TestPanicsBesideRequests(t *testing.T) {
	st := openStore(t, &store.Options{Committed: func(*store.Collection) { panic("a fault") }})
	s := startAt(t, st, words{}, nil)
	s.addPets(t)
	require.Contains(t, s.send(t, "GET", "/metrics", nil).body, "\nplaid_store_panics_total 1\n")
	w := httptest.NewRecorder()
	faulted := startAt(t, openStore(t, nil), faulty{}, nil)
	r := httptest.NewRequest("POST", "http://localhost/encode", strings.NewReader(`{"texts": ["a"], "input_type": "query"}`))
	r.Header.Set("Content-Type", "application/json")
	faulted.ServeHTTP(w, r)
	require.Equal(t, 500, w.Code)
	require.Contains(t, metrics(faulted.Server), "\nplaid_request_panics_total 1\n")
}
