// Package docs_test keeps the documentation true.
package docs_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/plaid-ir/plaid/"

// room is a row of the table of architecture.md.
type room struct {
	floor   int
	imports []string
}

var quoted = regexp.MustCompile("`([^`]+)`")

// readRooms reads the table: | floor | `room` | what | `import`, `import` |.
func readRooms(t *testing.T) map[string]room {
	text, err := os.ReadFile("architecture.md")
	require.NoError(t, err)
	rooms := map[string]room{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			continue
		}
		floor, err := strconv.Atoi(strings.TrimSpace(cells[0]))
		if err != nil {
			continue
		}
		var r room
		r.floor = floor
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			r.imports = append(r.imports, m[1])
		}
		slices.Sort(r.imports)
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			rooms[m[1]] = r
		}
	}
	return rooms
}

// roomOf is the room of a package: the one with the longest name that it begins with.
func roomOf(rooms map[string]room, path string) string {
	best := ""
	for name := range rooms {
		if (path == name || strings.HasPrefix(path, name+"/")) && len(name) > len(best) {
			best = name
		}
	}
	return best
}

// The table names every room with what it imports, and imports go down.
func TestRoomsAreAsDescribed(t *testing.T) {
	rooms := readRooms(t)
	require.NotEmpty(t, rooms)
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = ".."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	found := map[string]map[string]bool{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		path := strings.TrimPrefix(p.ImportPath, module)
		if path == "docs" {
			continue
		}
		from := roomOf(rooms, path)
		if !assertRoom(t, from, path) {
			continue
		}
		if found[from] == nil {
			found[from] = map[string]bool{}
		}
		for _, imported := range p.Imports {
			inside, ok := strings.CutPrefix(imported, module)
			if !ok {
				continue
			}
			to := roomOf(rooms, inside)
			if to == from || to == "" {
				continue
			}
			found[from][to] = true
			if rooms[to].floor >= rooms[from].floor {
				t.Errorf("%s (%s, floor %d) imports %s (%s, floor %d): imports go down", path, from, rooms[from].floor, inside, to, rooms[to].floor)
			}
		}
	}
	for name, r := range rooms {
		if found[name] == nil {
			t.Errorf("room %s of the table is not there", name)
			continue
		}
		var real []string
		for to := range found[name] {
			real = append(real, to)
		}
		slices.Sort(real)
		if !slices.Equal(real, r.imports) {
			t.Errorf("room %s imports %v, the table says %v", name, real, r.imports)
		}
	}
}

func assertRoom(t *testing.T, room, path string) bool {
	if room == "" {
		t.Errorf("package %s is in no room of the table", path)
	}
	return room != ""
}
