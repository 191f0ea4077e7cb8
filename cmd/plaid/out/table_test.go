package out

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTable(t *testing.T) {
	var b bytes.Buffer
	table := Table{Left: 1}
	table.Line("é", "10", "a")
	table.Line("long", "2")
	table.Remark("and more")
	table.Line("", "", "")
	table.Print(&b)
	require.Equal(t, "é     10  a\nlong   2  and more\n           \n", b.String())
}

// A table is what text/tabwriter makes of the same cells, where all columns are
// lined up to one side.
func TestTableAgainstTabwriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.IntRange(1, 4).Draw(t, "columns")
		text := rapid.StringMatching(`[a-zé… ]{0,6}`)
		right := rapid.Bool().Draw(t, "right")
		table, flags := Table{Left: columns}, uint(0)
		if right {
			table, flags = Table{Indent: 2}, tabwriter.AlignRight
		}
		var want, got bytes.Buffer
		w := tabwriter.NewWriter(&want, 0, 0, 2, ' ', flags)
		for range rapid.IntRange(1, 6).Draw(t, "lines") {
			cells := rapid.SliceOfN(text, columns, columns).Draw(t, "cells")
			remark := rapid.StringMatching(`([a-z][a-z ]{0,9})?`).Draw(t, "remark")
			table.Line(cells...)
			table.Remark(remark)
			line := strings.Join(cells, "\t") + "\t"
			switch {
			case right && remark != "":
				line += "  " + remark
			case !right && remark == "": // the last cell is filled up, but for the gap
				line += "-"
				table.Remark("-")
			case !right:
				line += remark
			}
			fmt.Fprintln(w, line)
		}
		require.NoError(t, w.Flush())
		table.Print(&got)
		require.Equal(t, want.String(), got.String())
	})
}
