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
		in: strings.NewReader(""), out: slave, err: slave, outWidth: width(slave), errWidth: width(slave),
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
		{append([]string{"recall", at("x.plaid"), "-k", "2"}, queries...), []string{"exhaustive search ", "search "}, "pruning: "},
		{append([]string{"bench", at("x.plaid"), "--probes", "1", "-k", "2"}, queries...), []string{"sweep"}, at("x.plaid") + ":"},
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
		require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\r\n"))), 80, line)
	}
}
