package server_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the dashboard and the alert rules ask for is there: each metric, each label of it
// that they name, and the routes.
func TestDashboardAndAlerts(t *testing.T) {
	s := start(t, words{}, nil)
	s.addPets(t)
	s.ok(t, 202, "POST", "/indices/pets/update_with_encoding", object{"documents": list{"fish swim"}}, nil)
	s.search(t, "", object{"queries": list{query("cats")}})
	s.search(t, "_with_encoding", object{"queries": list{"cats"}})
	page := s.send(t, "GET", "/metrics", nil).body

	var board struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Name string } }
	}
	text, err := os.ReadFile("deploy/grafana.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &board))
	require.NotEmpty(t, board.Panels)
	var asked []string
	for i, p := range board.Panels {
		require.Equal(t, i+1, p.ID)
		require.NotEmpty(t, p.Targets, p.Title)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24)
		for _, target := range p.Targets {
			asked = append(asked, target.Expr)
		}
	}
	variables := []string{"__rate_interval"}
	for _, v := range board.Templating.List {
		variables = append(variables, v.Name)
	}
	for _, v := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(string(text), -1) {
		require.Contains(t, append(variables, "__all"), v[1])
	}
	rules, err := os.ReadFile("deploy/plaid.rules.yaml")
	require.NoError(t, err)
	asked = append(asked, string(rules))

	metric := regexp.MustCompile(`\b((?:plaid|process|go)_[a-z_]+)(?:\{(.*?[^e])\})?`) // {name} of a route is no end
	label := regexp.MustCompile(`(\w+)(?:=~|!=|=)"`)
	n := 0
	for _, m := range metric.FindAllStringSubmatch(strings.Join(asked, "\n"), -1) {
		n++
		line := regexp.MustCompile(`(?m)^` + m[1] + `(\{.*\})? .*$`).FindString(page)
		require.NotEmpty(t, line, "%s is no metric of the service", m[1])
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "instance" && l[1] != "job" { // Prometheus adds these
				require.Contains(t, line, l[1]+`="`, m[0])
			}
		}
	}
	require.Greater(t, n, 30)
	require.Contains(t, page, `route="/indices/{name}/search"`)
}
