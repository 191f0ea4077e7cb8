package encode

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlocks(t *testing.T) {
	const code = `package a

import "fmt"

// A says a.
func A() {
	fmt.Println("a")

	fmt.Println("b")
}

// B says
// nothing.
func B() {
}
`
	for size, want := range map[int][]string{
		7: {"package a\n\nimport \"fmt\"", "// A says a.\nfunc A() {", "fmt.Println(\"a\")\n\n\tfmt.Println(\"b\")\n}\n\n// B says", "// nothing.\nfunc B() {\n}"}, // lines, since a block is too long
		10: {"package a\n\nimport \"fmt\"", "// A says a.\nfunc A() {\n\tfmt.Println(\"a\")\n\n\tfmt.Println(\"b\")\n}",
			"// B says\n// nothing.\nfunc B() {\n}"},
	} {
		p := Parting{By: ByBlocks, Size: size}
		parts, err := p.part(code)
		require.NoError(t, err)
		var got []string
		for _, x := range parts {
			got = append(got, code[x.start:x.end])
		}
		require.Equal(t, want, got, size)
	}
}
