package docs_test

import (
	"cmp"
	"fmt"
	"html"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bar is a row of the searches of lab/peers.md.
type bar struct {
	engine, bits, setting string
	ms                    float64
	recall                string
}

// The chart of the benchmarks shows the table of searches on SciFact in lab/peers.md: all of one run.
// PLAID_UPDATE_PICTURES draws it again.
func TestChartShowsTheTable(t *testing.T) {
	text, err := os.ReadFile("lab/peers.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "## scifact: search, k = 100, one query at a time on one core\n")
	require.True(t, ok, "lab/peers.md has no searches of scifact")
	table, _, _ = strings.Cut(table, "\n#")
	var bars []bar
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		if len(cells) != 8 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		p50, _, _ := strings.Cut(cells[3], " ")
		ms, err := strconv.ParseFloat(p50, 64)
		if err != nil {
			continue // the head, the line below it, and exact MaxSim, which was not timed
		}
		setting, _, _ := strings.Cut(cells[2], " (")
		bars = append(bars, bar{cells[0], cells[1], setting, ms, cells[6]})
	}
	require.GreaterOrEqual(t, len(bars), 5)
	slices.SortStableFunc(bars, func(a, b bar) int { return cmp.Compare(a.ms, b.ms) })
	want := drawBars(bars)
	if os.Getenv("PLAID_UPDATE_PICTURES") != "" {
		require.NoError(t, os.WriteFile("pictures/peers.svg", []byte(want), 0o666))
	}
	got, err := os.ReadFile("pictures/peers.svg")
	require.NoError(t, err)
	require.Equal(t, want, string(got), "PLAID_UPDATE_PICTURES=1 go test ./docs -run Chart")
}

// drawBars is a bar chart that can be read in light and in dark.
func drawBars(bars []bar) string {
	const width, left, most, top, step = 800, 316, 290.0, 64, 30
	height := top + step*len(bars) + 34
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="t d">
<title id="t">Milliseconds a query, and recall, of plaid and other engines</title>
<desc id="d">`, width, height, width, height)
	for i, r := range bars {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s, %s bits, %s: %g ms, recall %s", html.EscapeString(r.engine), r.bits, html.EscapeString(r.setting), r.ms, r.recall)
	}
	b.WriteString(`</desc>
<style>
  .bg{fill:#fff;stroke:#d0d7de}.ink{fill:#1f2328}.mut{fill:#59636e}.bar{fill:#0969da}.other{fill:#afb8c1}
  text{font-family:system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;font-size:13px}
  .h{font-weight:600}.s{font-size:11.5px}.e{text-anchor:end}
  @media (prefers-color-scheme:dark){.bg{fill:#0d1117;stroke:#3d444d}.ink{fill:#e6edf3}.mut{fill:#9198a1}.bar{fill:#4493f8}.other{fill:#656c76}}
</style>
`)
	fmt.Fprintf(&b, `<rect class="bg" x=".5" y=".5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	b.WriteString(`<text x="20" y="32" class="ink h">Milliseconds a query: SciFact, 1.2 million token vectors, the best 100, one core</text>` + "\n")
	fmt.Fprintf(&b, `<text x="780" y="%d" class="mut s e">recall@100</text>`+"\n", top-8)
	longest := bars[len(bars)-1].ms
	for i, r := range bars {
		y := top + step*i
		class, weight := "other", "ink"
		if r.engine == "plaid" {
			class, weight = "bar", "ink h"
		}
		name := fmt.Sprintf("%s, %s bits", r.engine, r.bits)
		if r.setting != "default" {
			name += `<tspan class="mut s">, ` + html.EscapeString(r.setting) + `</tspan>`
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" class="%s e">%s</text>`+"\n", left-12, y+18, weight, name)
		w := r.ms / longest * most
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="20" rx="3"/>`+"\n", class, left, y+3, w)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" class="%s">%.1f ms</text>`+"\n", left+w+8, y+18, weight, r.ms)
		fmt.Fprintf(&b, `<text x="780" y="%d" class="%s e">%s</text>`+"\n", y+18, weight, r.recall)
	}
	fmt.Fprintf(&b, `<text x="20" y="%d" class="mut s">Recall: the share of the best 100 by exact MaxSim over the original vectors. Other engines as their defaults are, but where named.</text>`+"\n", height-14)
	b.WriteString("</svg>\n")
	return b.String()
}
