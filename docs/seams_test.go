package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	seamPackage = regexp.MustCompile("^`(\\.[\\w./]*)`$")
	seamTest    = regexp.MustCompile(`^Test\w+$`)
)

// Each pair of the parts that CONTRIBUTING.md lists has a line, which names tests that are there or
// says why there is none.
func TestWhatMeetsWhat(t *testing.T) {
	var parts []string
	lines := map[[2]string]string{}
	inside := false
	for _, l := range readLines(t, "CONTRIBUTING.md") {
		if strings.HasPrefix(l.text, "## ") {
			inside = l.text == "## What meets what"
		}
		cells := strings.Split(strings.Trim(l.text, "| "), "|")
		if !inside || !strings.HasPrefix(l.text, "| ") || len(cells) != 3 || strings.Contains(l.text, "---") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		for _, part := range cells[:2] {
			if !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
		pair := [2]string{cells[0], cells[1]}
		require.NotContains(t, lines, pair)
		require.NotContains(t, lines, [2]string{cells[1], cells[0]})
		lines[pair] = cells[2]
	}
	require.Len(t, parts, 9)
	named := 0
	for i, one := range parts {
		for _, other := range parts[i+1:] {
			says, there := lines[[2]string{one, other}]
			if !assert.True(t, there, "%s and %s have no line", one, other) {
				continue
			}
			if !strings.HasPrefix(says, "`") {
				assert.Greater(t, len(strings.Fields(says)), 3, "%s and %s: why is there no test?", one, other)
				continue
			}
			var tests []string
			for word := range strings.FieldsSeq(strings.NewReplacer(",", " ", ";", " ").Replace(says)) {
				if m := seamPackage.FindStringSubmatch(word); m != nil {
					tests = testsOf(t, strings.TrimPrefix(m[1], "./"))
					continue
				}
				require.Regexp(t, seamTest, word, "%s and %s", one, other)
				assert.Contains(t, tests, word, "%s and %s", one, other)
				named++
			}
		}
	}
	require.Greater(t, named, 25)
}
