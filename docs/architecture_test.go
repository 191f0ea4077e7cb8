// Package docs_test keeps the documentation true.
package docs_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/plaid-ir/plaid"

// ofTests is the floor of the rooms that hold tests and what only they need.
const ofTests = -1

var (
	floorRow = regexp.MustCompile("^\\| (\\d+|tests) \\| `([^`]+)` \\|")
	step     = regexp.MustCompile("`([a-z][a-z0-9/]*/\\w+\\.go):(\\w+)`")
	place    = regexp.MustCompile("`((?:[a-z][a-z0-9_]*/)+[a-z0-9_]*(?:\\.go)?)`")
)

// readFloors reads the table of architecture.md: the floor of each room.
func readFloors(t *testing.T) map[string]int {
	text, err := os.ReadFile("architecture.md")
	require.NoError(t, err)
	floors := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if m := floorRow.FindStringSubmatch(line); m != nil {
			floor, err := strconv.Atoi(m[1])
			if err != nil {
				floor = ofTests
			}
			require.NotContains(t, floors, m[2])
			floors[m[2]] = floor
		}
	}
	require.Greater(t, len(floors), 10)
	return floors
}

// roomOf is the room of a package: the one with the longest name that the path begins with. The
// package at the root is "plaid".
func roomOf(floors map[string]int, path string) string {
	best := ""
	for name := range floors {
		if (path == name || strings.HasPrefix(path, name+"/")) && len(name) > len(best) {
			best = name
		}
	}
	return best
}

// suites are the packages for tests that stay beside what they test, since they import what is internal
// to kernels. All others are below internal/testing.
var suites = []string{
	"kernels/internal/tiletest",
	"kernels/cuda/internal/driver/drivertest",
	"kernels/cuda/internal/runtime/runtimetest",
	"kernels/cuda/internal/resident/residenttest",
}

// The table has every package, and imports stay in a room or go to a lower floor.
func TestImportsGoDown(t *testing.T) {
	floors := readFloors(t)
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = ".."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	inside := func(path string) (string, bool) {
		if path == module {
			return "plaid", true
		}
		return strings.CutPrefix(path, module+"/")
	}
	used, known := map[string]bool{}, map[string]bool{}
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
		path, _ := inside(p.ImportPath)
		from := roomOf(floors, path)
		if !assert.NotEmpty(t, from, "package %s is in no room of architecture.md", path) {
			continue
		}
		used[from], known[path] = true, true
		if floors[from] == ofTests || slices.Contains(suites, path) {
			continue
		}
		for _, imported := range p.Imports {
			imported, ok := inside(imported)
			switch to := roomOf(floors, imported); {
			case !ok:
			case floors[to] == ofTests || slices.Contains(suites, imported):
				t.Errorf("%s imports %s, which is for tests", path, imported)
			case to != from && floors[to] >= floors[from]:
				t.Errorf("%s (%s, floor %d) imports %s (%s, floor %d): imports go down", path, from, floors[from], imported, to, floors[to])
			}
		}
	}
	for _, path := range suites {
		assert.True(t, known[path], "package %s is not there", path)
	}
	for name := range floors {
		assert.True(t, used[name], "room %s of architecture.md has no package", name)
	}
}

// Files, folders and functions that the map names are there.
func TestMapNamesWhatIsThere(t *testing.T) {
	text, err := os.ReadFile("architecture.md")
	require.NoError(t, err)
	steps := step.FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(steps), 30)
	for _, m := range steps {
		source, err := os.ReadFile(filepath.Join("..", m[1]))
		if assert.NoError(t, err) {
			assert.Regexp(t, `(?m)^func (\([^)]*\) )?`+m[2]+`\b`, string(source), "%s has no function %s", m[1], m[2])
		}
	}
	for _, m := range place.FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
			t.Errorf("architecture.md names %s, which is not there", m[1])
		}
	}
}
