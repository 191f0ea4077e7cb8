package command

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/plaid-ir/plaid/internal/testing/hubtest"
)

// hubs has the model hub of a script, by script.
var hubs sync.Map

// serveHub starts a hub with a model, or adds one, or changes what the hub does:
//
//	hub add ORG/NAME[@BRANCH] DIR  sets HF_ENDPOINT and COMMIT
//	hub gate ORG/NAME TOKEN        refuses it to requests without the token
//	hub break FILE                 answers no request for a file any more; mend ends that
//	hub asked PATTERN…             fails unless a request for each was made since the last asked;
//	                               without patterns, if any was
//	hub close
func serveHub(ts *testscript.TestScript, _ bool, args []string) {
	kept, ok := hubs.Load(ts)
	if !ok {
		h := hubtest.New()
		ts.Defer(h.Close)
		ts.Setenv("HF_ENDPOINT", h.URL)
		kept = h
		hubs.Store(ts, h)
	}
	h := kept.(*hubtest.Hub)
	switch args[0] {
	case "add":
		name, branch, ok := strings.Cut(args[1], "@")
		if !ok {
			branch = "main"
		}
		commit, err := h.AddFolder(name, branch, ts.MkAbs(args[2]))
		ts.Check(err)
		ts.Setenv("COMMIT", commit)
	case "gate":
		h.Gate(args[1], args[2])
	case "break":
		h.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
			bad := strings.HasSuffix(r.URL.Path, args[1])
			if bad {
				hubtest.Refuse(w, http.StatusForbidden, "", "broken")
			}
			return bad
		})
	case "mend":
		h.SetFault(nil)
	case "asked":
		var paths []string
		for _, r := range h.Requests() {
			paths = append(paths, fmt.Sprintf("%s %s", r.Method, r.Path))
		}
		all := strings.Join(paths, "\n")
		if len(args) == 1 && all != "" {
			ts.Fatalf("the hub was asked for %s", all)
		}
		for _, want := range args[1:] {
			if !strings.Contains(all, want) {
				ts.Fatalf("the hub was not asked for %s: %s", want, all)
			}
		}
	case "close":
		h.Close()
	default:
		ts.Fatalf("hub %s", args[0])
	}
}
