package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	shown   = regexp.MustCompile(`(?s)\t// docs/api\.md begins\n(.*?)\t// docs/api\.md ends\n`)
	goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")
)

// The Go examples of docs/api.md are the bodies of the Examples here, all of them, so that they
// compile and run.
func TestPageShowsTheExamples(t *testing.T) {
	var bodies []string
	for _, file := range []string{"door_test.go", "example_test.go", "api_test.go"} {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range shown.FindAllStringSubmatch(string(source), -1) {
			var lines []string
			for line := range strings.Lines(m[1]) {
				lines = append(lines, strings.TrimPrefix(line, "\t"))
			}
			bodies = append(bodies, strings.Join(lines, ""))
		}
	}
	page, err := os.ReadFile(filepath.Join("..", "api.md"))
	require.NoError(t, err)
	var blocks []string
	for _, m := range goBlock.FindAllStringSubmatch(string(page), -1) {
		blocks = append(blocks, m[1])
	}
	require.ElementsMatch(t, bodies, blocks)
}
