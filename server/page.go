package server

import (
	"net/http"

	"github.com/plaid-ir/plaid/server/ui"
)

// pageRoutes are those of the page. Its files need no token: what they ask does.
func pageRoutes() ([]route, error) {
	files, err := ui.Files()
	if err != nil {
		return nil, err
	}
	answers := func(pattern string, do func(q *request) error) route {
		return route{method: http.MethodGet, pattern: pattern, page: true, group: free, do: do}
	}
	routes := []route{answers("/ui/", func(q *request) error {
		q.w.Header().Set("Location", "../ui") // relative: there may be a path before it that is not known here
		q.w.WriteHeader(http.StatusMovedPermanently)
		return nil
	})}
	for i := range files {
		f := &files[i]
		routes = append(routes, answers(f.Path, func(q *request) error {
			f.ServeHTTP(q.w, q.Request)
			return nil
		}))
	}
	return routes, nil
}
