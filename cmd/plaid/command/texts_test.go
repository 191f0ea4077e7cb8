package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/internal/testing/effort"
	"github.com/plaid-ir/plaid/vectors"
)

const (
	nano   = "../../../docs/examples/quickstart/colbert-nano"
	corpus = "../../../docs/examples/quickstart/scifact-sample/corpus.jsonl"
)

// spooled waits until a spool has some documents.
func spooled(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool {
		info, err := os.Stat(path)
		return err == nil && info.Size() > 300_000
	}, 2*time.Minute, 5*time.Millisecond)
}

// encodedOf is what a report says of texts.
func encodedOf(t *testing.T, stdout []byte) (r textsReport) {
	t.Helper()
	var rep struct{ Encoded textsReport }
	require.NoError(t, json.Unmarshal(stdout, &rep))
	return rep.Encoded
}

func digest(t *testing.T, path string) string {
	t.Helper()
	code, stdout, stderr := try(t, "info", path, "--json")
	require.Equal(t, exitOK, code, stderr)
	var rep struct{ Digest string }
	require.NoError(t, json.Unmarshal([]byte(stdout), &rep))
	return rep.Digest
}

// What was encoded before Ctrl-C, or before a kill, is not encoded again, and the
// index is the same as without either.
func TestTextsGoOn(t *testing.T) {
	if !effort.Long() {
		t.Skip("encodes a collection several times")
	}
	dir := t.TempDir()
	lines, err := os.ReadFile(corpus)
	require.NoError(t, err)
	docs := bytes.SplitAfter(lines, []byte("\n"))
	args := func(name string) []string {
		return []string{"index", filepath.Join(dir, name+".plaid"), "--text", "-", "--spool", filepath.Join(dir, name+".spool"),
			"--model", nano, "--threads", "1", "--centroids", "64", "--json"}
	}
	all := func(name string) textsReport {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), args(name), streams{in: bytes.NewReader(lines), out: &stdout, err: &stderr})
		require.Equal(t, exitOK, code, stderr.String())
		return encodedOf(t, stdout.Bytes())
	}
	require.Equal(t, 0, all("whole").Resumed)

	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	r, w := io.Pipe()
	go w.Write(bytes.Join(docs[:45], nil)) // and then stdin says nothing
	ended := make(chan int, 1)
	var stderr bytes.Buffer
	go func() { ended <- run(ctx, args("interrupted"), streams{in: r, out: io.Discard, err: &stderr}) }()
	spooled(t, filepath.Join(dir, "interrupted.spool"))
	interrupt()
	require.Equal(t, exitInterrupted, <-ended, stderr.String())
	require.Contains(t, stderr.String(), "interrupted.spool: repeat the command to continue from there")
	require.NoFileExists(t, filepath.Join(dir, "interrupted.plaid"))

	plaid, err := exec.LookPath("plaid") // which is this test
	require.NoError(t, err)
	cmd := exec.Command(plaid, args("killed")...)
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	go stdin.Write(bytes.Join(docs[:45], nil))
	spooled(t, filepath.Join(dir, "killed.spool"))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()

	for _, name := range []string{"interrupted", "killed"} {
		r := all(name)
		require.Positive(t, r.Resumed, name)
		require.Equal(t, 46, r.Texts, name)
		require.Equal(t, digest(t, filepath.Join(dir, "whole.plaid")), digest(t, filepath.Join(dir, name+".plaid")), name)
	}
}

// On a device texts are encoded while the index is built, also in the place of another one.
// After a kill or an interrupt, which says so, the same command goes on; the index is that of
// a spool.
func TestTextsOnDeviceGoOn(t *testing.T) {
	if !effort.Long() {
		t.Skip("encodes a collection several times")
	}
	plaid, err := exec.LookPath("plaid") // which is this test
	require.NoError(t, err)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	lines, err := os.ReadFile(corpus)
	require.NoError(t, err)
	var many bytes.Buffer
	rest := fmt.Sprintf(`{"rest": "%s", "_id": "`, strings.Repeat("x", 30_000))
	for i := range 7 { // 21 MB of tokens and payloads, of which 8 are written at a time
		own := bytes.ReplaceAll(lines, []byte(`"text": "`), fmt.Appendf(nil, `"text": "%d `, i)) // equal ones are encoded once
		many.Write(bytes.ReplaceAll(own, []byte(`{"_id": "`), fmt.Appendf(nil, "%s%d-", rest, i)))
	}
	require.NoError(t, os.WriteFile(at("many.jsonl"), many.Bytes(), 0o666))
	index := func(name, env string, more ...string) (code int, r indexReport, stderr string) {
		cmd := exec.Command(plaid, append([]string{"index", at(name), "--text", at("many.jsonl"), "--model", nano, "--device", "oracle:2",
			"--codec", at("codec"), "--memory", "32MiB", "--no-check", "--json"}, more...)...)
		cmd.Env = append(os.Environ(), "PLAID_TEST_DEVICES=1", env)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run()
		if code = cmd.ProcessState.ExitCode(); code == exitOK {
			require.NoError(t, json.Unmarshal(out.Bytes(), &r))
		}
		return code, r, errs.String()
	}
	cmd := exec.Command(plaid, "index", at("codec"), "--codec-only", "--text", corpus, "--model", nano, "--device", "oracle:2", "--nbits", "8", "--centroids", "8")
	cmd.Env = append(os.Environ(), "PLAID_TEST_DEVICES=1")
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, string(b))
	code, r, stderr := index("whole.plaid", "", "--spool", at("kept"))
	require.Equal(t, exitOK, code, stderr)
	require.False(t, r.Encoded.Streamed)
	require.FileExists(t, at("kept"))
	want := digest(t, at("whole.plaid"))
	const there = "there.plaid"
	b, err = os.ReadFile(at("codec"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(at(there), b, 0o666))
	former := digest(t, at(there))
	most := r.Encoded.Tokens * 95 / 100
	for name, x := range map[string]struct {
		env  string
		more []string
	}{
		"killed": {fmt.Sprintf("PLAID_TEST_KILL=%d", most), nil}, "interrupted": {fmt.Sprintf("PLAID_TEST_INTERRUPT=%d", most), nil},
		"there": {fmt.Sprintf("PLAID_TEST_INTERRUPT=%d", most), []string{"--force"}},
	} {
		path := name + ".plaid"
		code, _, stderr = index(path, x.env, x.more...)
		require.NotEqual(t, exitOK, code, name)
		if name != "killed" {
			require.Equal(t, exitInterrupted, code, stderr)
			require.Contains(t, stderr, path+": repeat the command to continue from there", name)
		}
		if path == there {
			require.Equal(t, former, digest(t, at(path)))
		}
		code, r, stderr = index(path, "", x.more...)
		require.Equal(t, exitOK, code, stderr)
		require.True(t, r.Encoded.Streamed)
		require.Positive(t, r.Resumed, name)
		require.Equal(t, want, digest(t, at(path)), name)
	}
	left, err := filepath.Glob(at("*.spool"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// Texts that change after all were read, and before they are encoded, are an error. What of
// them was encoded stays.
func TestTextsThatChange(t *testing.T) {
	dir := t.TempDir()
	path, spool := filepath.Join(dir, "texts.jsonl"), filepath.Join(dir, "x.spool")
	e, err := encode.Open(nano, nil)
	require.NoError(t, err)
	defer e.Close()
	write := func(last string) {
		require.NoError(t, os.WriteFile(path, []byte(`{"_id": "a", "text": "mitosis"}`+"\n"+`{"_id": "b", "text": "`+last+`"}`+"\n"), 0o666))
	}
	for _, kept := range []string{"", spool} {
		write("cells divide")
		a := newApp(streams{out: io.Discard, err: io.Discard}, nil)
		s := &spooling{app: a, encoder: e, texts: &flags.Texts{Paths: []string{path}}, spoolPath: kept, temporaryPath: spool}
		require.NoError(t, s.survey(t.Context()))
		write("divide cells")
		err = s.run(t.Context(), func(*encode.Spooled, *textsReport) error {
			t.Error("used")
			return nil
		})
		require.ErrorIs(t, err, vectors.ErrChanged)
		require.ErrorContains(t, err, path+`: line 2: id "b": `)
		require.FileExists(t, spool)
		s = &spooling{app: a, encoder: e, texts: &flags.Texts{Paths: []string{path}}, spoolPath: kept, temporaryPath: spool}
		require.NoError(t, s.run(t.Context(), func(s *encode.Spooled, r *textsReport) error {
			require.Equal(t, []int{2, 1}, []int{s.Len(), r.Resumed})
			return nil
		}))
	}
}

// A question, a text that is encoded: the first interrupt ends the wait for stdin.
func TestInterruptedStdin(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.plaid")
	text := filepath.Join(dir, "a.txt")
	require.NoError(t, os.WriteFile(text, []byte("cells divide\n"), 0o666))
	code, _, stderr := try(t, "index", path, "--text", text, "--model", nano)
	require.Equal(t, exitOK, code, stderr)
	for _, args := range [][]string{
		{"search", path, "--questions", "-"},
		{"add", path, "--text", "-"},
		{"encode", "-", "--model", nano, "-o", filepath.Join(dir, "v")},
		{"encode", "-", "--queries", "--model", nano, "-o", filepath.Join(dir, "v")},
	} {
		requireInterrupted(t, args)
	}
}

// requireInterrupted runs a command line that waits for stdin or a pipe, and interrupts it.
func requireInterrupted(t *testing.T, args []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	silent, w := io.Pipe()
	defer w.Close()
	var stderr bytes.Buffer
	code := run(ctx, args, streams{in: silent, out: io.Discard, err: &stderr})
	require.Equal(t, exitInterrupted, code, "%v: %s", args, stderr.String())
}

// What was to be done is done, and the report of it cannot be written: nothing is left
// that would be needed to go on.
func TestSpoolGoesWithoutReport(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("one.txt"), []byte("one text\nanother text\n"), 0o644))
	for _, args := range [][]string{
		{"index", at("x.plaid"), "--text", at("one.txt"), "--model", nano},
		{"add", at("x.plaid"), "--text", at("one.txt"), "--replace"},
	} {
		var stderr bytes.Buffer
		code := run(t.Context(), args, streams{out: failingWriter{}, err: &stderr})
		require.Equal(t, exitFailed, code)
		require.Contains(t, stderr.String(), "writing the result: disk full")
		require.NotContains(t, stderr.String(), "continue from there")
		left, err := filepath.Glob(at("*.spool"))
		require.NoError(t, err)
		require.Empty(t, left)
		code, stdout, errs := try(t, "info", at("x.plaid"), "--json")
		require.Equal(t, exitOK, code, errs)
		require.Contains(t, stdout, `"docs":2,`)
	}
}

// An id that leaves no room for the numbers of passages is refused before the first text is encoded,
// also where its text is short; without passages it is an id like others.
func TestLongIDOfPassages(t *testing.T) {
	dir := t.TempDir()
	texts, index := filepath.Join(dir, "x.jsonl"), filepath.Join(dir, "x.plaid")
	write := func(bytes int) {
		line := `{"_id":"` + strings.Repeat("y", bytes) + `","text":"dogs bark"}`
		require.NoError(t, os.WriteFile(texts, []byte("{\"_id\":\"a\",\"text\":\"cats sleep\"}\n"+line+"\n"), 0o666))
	}
	write(4085)
	build := []string{"index", index, "--text", texts, "--model", nano, "--no-check", "-q"}
	code, _, stderr := try(t, append(build, "--window", "3")...)
	require.Equal(t, exitOK, code, stderr)
	write(4086)
	for _, args := range [][]string{
		append(build, "--force"),
		{"add", index, "--text", texts, "--replace", "-q"},
		{"encode", texts, "--model", nano, "-o", filepath.Join(dir, "v"), "-q"},
	} {
		code, _, stderr := try(t, append(args, "--window", "3")...)
		require.Equal(t, exitFailed, code, args)
		require.Contains(t, stderr, texts+": line 2: id ", args)
		require.Contains(t, stderr, "4086 bytes; at most 4085 leave room for the numbers of passages", args)
		left, err := filepath.Glob(filepath.Join(dir, "*", "*"))
		require.NoError(t, err)
		require.Empty(t, left, "something was encoded")
		code, _, stderr = try(t, args...)
		require.Equal(t, exitOK, code, stderr)
	}
}
