package examples

import (
	"os"
	"path/filepath"
	"regexp"
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
	source, err := os.ReadFile("api_test.go")
	require.NoError(t, err)
	var bodies []string
	for _, m := range shown.FindAllStringSubmatch(string(source), -1) {
		bodies = append(bodies, regexp.MustCompile(`(?m)^\t`).ReplaceAllString(m[1], ""))
	}
	page, err := os.ReadFile(filepath.Join("..", "api.md"))
	require.NoError(t, err)
	var blocks []string
	for _, m := range goBlock.FindAllStringSubmatch(string(page), -1) {
		blocks = append(blocks, m[1])
	}
	require.ElementsMatch(t, bodies, blocks)
}
