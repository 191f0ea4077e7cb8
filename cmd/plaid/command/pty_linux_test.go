package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal runs a command line whose stdout and stderr are one terminal of 80 columns,
// with a clock on which everything takes long, and returns the bytes that arrive there.
func terminal(t *testing.T, args ...string) (code int, bytesThere string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer master.Close()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	require.NoError(t, unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	var seen bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&seen, master) // ends with an error when the other end is closed
	}()
	now := time.Unix(1000, 0)
	code = run(context.Background(), args, streams{
		in: strings.NewReader(""), out: slave, err: slave, outWidth: terminalWidth(slave), errWidth: terminalWidth(slave),
		now: func() time.Time { now = now.Add(time.Second); return now },
	})
	require.NoError(t, slave.Close())
	<-done
	return code, seen.String()
}

// screen is what stands on a terminal after these bytes: only what the program uses is
// understood, a return to the beginning of the line and an erasure to its end.
func screen(t *testing.T, text string) (lines []string) {
	line, at := []rune{}, 0
	rest := []rune(text)
	for i := 0; i < len(rest); i++ {
		switch r := rest[i]; r {
		case '\r':
			at = 0
		case '\n':
			lines = append(lines, string(line))
			line, at = nil, 0
		case '\x1b':
			require.Equal(t, "[K", string(rest[i+1:i+3]), "only this sequence is used")
			line = line[:at]
			i += 2
		default:
			line = append(line[:at], append([]rune{r}, line[min(at+1, len(line)):]...)...)
			at++
		}
	}
	return append(lines, string(line))
}

// On a terminal progress is shown in one line, which is gone before a result is
// written.
func TestTerminal(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	values := make([]float32, 600*8)
	for i := range values {
		values[i] = float32(i*i%97) - 48
	}
	lengths := make([]int64, 100)
	for i := range lengths {
		lengths[i] = 6
	}
	require.NoError(t, writeNPY(at("d.npy"), values, 8))
	require.NoError(t, writeInts(at("l.npy"), lengths))
	require.NoError(t, writeNPY(at("q.npy"), values[:8*8], 8))
	require.NoError(t, writeInts(at("ql.npy"), []int64{2, 2, 2, 2}))
	docs := []string{"--vectors", at("d.npy"), "--lengths", at("l.npy")}
	queries := []string{"--queries", at("q.npy"), "--query-lengths", at("ql.npy")}
	for _, c := range []struct {
		args     []string
		progress []string // stages that are seen
		first    string   // of the result
	}{
		{append([]string{"index", at("x.plaid")}, docs...), []string{"train ", "levels ", "encode ", "commit "}, at("x.plaid") + ": 100 documents"},
		{append([]string{"add", at("x.plaid"), "--replace"}, docs...), []string{"encode "}, "added 100 documents"},
		{append([]string{"bench", at("x.plaid"), "--probes", "1", "-k", "2"}, queries...), []string{"exhaustive search ", "sweep", "search "}, at("x.plaid") + ":"},
		{append([]string{"tune", at("x.plaid"), "-k", "2", "--force"}, queries...), []string{"tuning k = 2"}, at("x.plaid") + ":"},
		{[]string{"compact", at("x.plaid")}, []string{"compact "}, at("x.plaid") + ": 100 documents"},
		{[]string{"export", at("x.plaid"), at("out")}, []string{"export "}, at("out") + ": 100 documents"},
	} {
		code, text := terminal(t, c.args...)
		require.Equal(t, exitOK, code, text)
		for _, stage := range c.progress {
			require.Contains(t, text, "\r"+stage, c.args)
		}
		lines := screen(t, text)
		require.True(t, strings.HasPrefix(lines[0], c.first), "%q: the first line is %q of %q", c.args, lines[0], text)
		require.Empty(t, lines[len(lines)-1], "nothing is left behind the result")
	}
}

// Help is as wide as the terminal, and no wider.
func TestHelpFitsTheTerminal(t *testing.T) {
	code, text := terminal(t, "search", "--help")
	require.Equal(t, exitOK, code)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "  plaid ") { // examples are lines to be copied
			require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\r\n"))), 80, line)
		}
	}
}

// Results have colours on a terminal, unless somebody does not want them, and the words that
// were found stand in more than one line.
func TestColours(t *testing.T) {
	dir := t.TempDir()
	texts, path := filepath.Join(dir, "t.jsonl"), filepath.Join(dir, "x.plaid")
	nano, err := filepath.Abs("../../../docs/examples/quickstart/colbert-nano")
	require.NoError(t, err)
	long := strings.Repeat("All animals rest in some way. ", 8) + "Owls hunt mice at night in the dark woods. " + strings.Repeat("Bees fly by day. ", 20)
	require.NoError(t, os.WriteFile(texts, fmt.Appendf(nil, `{"_id": "owl", "text": %q, "year": 2024}`+"\n", long), 0o666))
	code, text := terminal(t, "index", path, "--text", texts, "--model", nano, "-q")
	require.Equal(t, exitOK, code, text)
	const question = "what hunts mice at night?"
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	plain := strings.NewReplacer("\x1b[1m", "", "\x1b[2m", "", "\x1b[35m", "", "\x1b[1;31m", "", "\x1b[32m", "", "\x1b[0m", "")

	code, text = terminal(t, "search", path, question, "-q", "--highlight", "--show-metadata")
	require.Equal(t, exitOK, code, text)
	require.Contains(t, text, "\x1b[1m"+question+"\x1b[0m")
	require.Contains(t, text, "\x1b[35mowl\x1b[0m")
	require.Contains(t, text, "\x1b[1;31m")
	require.Contains(t, text, `"year":2024`)
	lines := strings.Split(strings.TrimRight(plain.Replace(text), "\r\n"), "\r\n")
	require.Len(t, lines, 1+3+1, "a question, a hit of three lines, and what is stored: %q", lines)
	for _, l := range lines[:4] {
		require.LessOrEqual(t, len([]rune(l)), 80, l)
	}
	require.NotContains(t, plain.Replace(text), "\x1b")

	code, text = terminal(t, "explain", path, "owl", question, "-q")
	require.Equal(t, exitOK, code, text)
	require.Contains(t, text, "stage:    \x1b[32mreturned\x1b[0m")
	require.Contains(t, text, "\x1b[1;31mmice\x1b[0m")

	t.Setenv("NO_COLOR", "1")
	_, text = terminal(t, "explain", path, "owl", question, "-q")
	require.NotContains(t, text, "\x1b[1")
	require.NotContains(t, text, "\x1b[3")
	_, text = terminal(t, "search", path, question, "-q", "--highlight")
	require.NotContains(t, text, "\x1b[1")
	require.NotContains(t, text, "\x1b[3")
	require.Contains(t, text, "[mice]")
	t.Setenv("NO_COLOR", "")
	t.Setenv("CLICOLOR_FORCE", "1")
	var piped bytes.Buffer
	code = run(t.Context(), []string{"search", path, question, "-q"}, streams{in: strings.NewReader(""), out: &piped, err: io.Discard})
	require.Equal(t, exitOK, code)
	require.Contains(t, piped.String(), "\x1b[35mowl\x1b[0m")
}
