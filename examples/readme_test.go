package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The Go example of the README is the body of the Example below.
func TestReadmeShowsTheExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	_, body, ok := strings.Cut(string(source), "// README begins\n")
	require.True(t, ok)
	body, _, ok = strings.Cut(body, "\t// README ends\n")
	require.True(t, ok)
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(body) {
		lines = append(lines, strings.TrimPrefix(line, "\t"))
	}
	require.Contains(t, string(readme), "```go\n"+strings.Join(lines, "")+"```")
}
