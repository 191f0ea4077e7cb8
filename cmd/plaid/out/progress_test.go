package out

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
)

func TestProgressLines(t *testing.T) {
	now := time.Unix(1000, 0)
	var b bytes.Buffer
	report := Progress(NewConsole(&b, 0), func() time.Time { return now })
	step := func(d time.Duration, stage string, done, total int64) {
		now = now.Add(d)
		report(index.Progress{Stage: stage, Done: done, Total: total, Unit: "tokens"})
	}
	step(0, "train", 0, 100)
	step(9*time.Second, "train", 90, 100)
	require.Empty(t, b.String(), "nothing before ten seconds have passed")
	step(time.Second, "train", 100, 100)
	require.Equal(t, "train 100%, 100 of 100 tokens, 10/s\n", b.String())
	b.Reset()
	step(time.Second, "encode", 1000, 1_000_000)
	step(9*time.Second, "encode", 91_000, 1_000_000)
	require.Equal(t, "encode 9%, 91,000 of 1,000,000 tokens, 10.0k/s, 1m31s left\n", b.String())
	b.Reset()
	now = now.Add(10 * time.Second)
	report(index.Progress{Stage: "commit"})
	require.Equal(t, "commit …\n", b.String(), "what cannot be counted")
	b.Reset()
	now = now.Add(time.Second)
	report(index.Progress{Stage: "fetch x", Total: 3 << 29, Unit: UnitBytes})
	now = now.Add(10 * time.Second)
	report(index.Progress{Stage: "fetch x", Done: 15 << 19, Total: 3 << 29, Unit: UnitBytes})
	require.Equal(t, "fetch x 0%, 7.5 MiB of 1.5 GiB, 768 KiB/s, 33m58s left\n", b.String())
}

func TestProgressOnTerminal(t *testing.T) {
	now := time.Unix(1000, 0)
	var b bytes.Buffer
	console := NewConsole(&b, 20)
	report := Progress(console, func() time.Time { return now })
	for i := range 4 {
		now = now.Add(60 * time.Millisecond)
		report(index.Progress{Stage: "encode", Done: int64(i), Total: 3, Unit: "tokens"})
	}
	fmt.Fprintln(console, "careful")
	console.ClearStatus()
	require.Equal(t, "\rencode 33%, 1 of 3…\x1b[K\rencode 100%, 3 of …\x1b[K\r\x1b[Kcareful\n", b.String())
}

// A window that is made narrower has a narrower line from then on.
func TestProgressInNarrowerWindow(t *testing.T) {
	now, width := time.Unix(1000, 0), 40
	var b bytes.Buffer
	console := NewConsole(&b, width)
	console.CurrentWidth = func() int { return width }
	report := Progress(console, func() time.Time { return now })
	for _, width = range []int{40, 12} {
		now = now.Add(time.Second)
		report(index.Progress{Stage: "encode", Done: 1, Total: 2, Unit: "tokens"})
	}
	require.Equal(t, "\rencode 50%, 1 of 2 tokens\x1b[K\rencode 50%…\x1b[K", b.String())
}

// A stage that begins is shown at once, since the one that stands there is over, and a
// result is written where the status line was.
func TestStagesAndResults(t *testing.T) {
	now := time.Unix(1000, 0)
	var b bytes.Buffer
	console := NewConsole(&b, 40)
	report := Progress(console, func() time.Time { return now })
	now = now.Add(time.Second)
	report(index.Progress{Stage: "train", Done: 1, Total: 2, Unit: "x"})
	report(index.Progress{Stage: "encode", Done: 0, Total: 2, Unit: "x"})
	fmt.Fprint(console.ErasingStatus(&b), "result\n")
	console.ClearStatus()
	require.Equal(t, "\rtrain 50%, 1 of 2 x\x1b[K\rencode 0%, 0 of 2 x\x1b[K\r\x1b[Kresult\n", b.String())
}

func TestTextProgress(t *testing.T) {
	now := time.Unix(1000, 0)
	var b bytes.Buffer
	report := TextProgress(NewConsole(&b, 0), func() time.Time { return now })
	report(Texts{Done: 100, Total: 1000, Bytes: 5000, AllBytes: 50_000, Tokens: 1})
	now = now.Add(10 * time.Second)
	report(Texts{Done: 300, Total: 1000, Bytes: 14_000, AllBytes: 50_000, Tokens: 352_000})
	require.Equal(t, "texts 28%, 300 of 1,000, 352,000 tokens, 35.2k tokens/s, 40s left\n", b.String())
	b.Reset()
	now = now.Add(10 * time.Second)
	report(Texts{Done: 1, Bytes: 15_000, Tokens: 400_000})
	require.Equal(t, "1 text, 400,000 tokens, 20.0k tokens/s\n", b.String())
}
