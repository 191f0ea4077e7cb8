package folder

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/encode/tokenizer"
)

// The payload of a passage tells of its file, and whether it still says what it did at first.
func TestReadEntry(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a.txt", "One two. Three four. Five six.")
	files, _, err := Scan(t.Context(), root, 0, nil)
	require.NoError(t, err)
	c, err := files[0].Read(0)
	require.NoError(t, err)
	c.Root, c.Device = "/notes", "7"
	how := encode.Splitting{Window: 2}
	want := Entry{
		Path: "a.txt", Digest: c.Digest, Root: "/notes", Device: "7", Cut: "kinds 2+0 of 0 words", Parts: 3, Intact: true,
	}
	var payloads []string
	for p, err := range c.Texts(how) {
		require.NoError(t, err)
		e, ok := ReadEntry(p.Payload)
		require.True(t, ok)
		require.Equal(t, want, e)
		payloads = append(payloads, string(p.Payload))
	}
	require.Len(t, payloads, 3)

	for set, intact := range map[string]bool{
		`{"kind":"note"}`: true, `{"root":"/papers"}`: true, `{"device":"8"}`: true, `{"title":"a.txt"}`: true,
		`{"title":"b.txt"}`: false, `{"text":"One"}`: false, `{"line":2}`: false, `{"line":"one"}`: false,
		`{"parts":2}`: false, `{"cut":"kinds 3+0 of 0 words"}`: false, `{"digest":"0"}`: false, `{"path":"b.txt"}`: false,
		`{"check":""}`: false, `{"parts":null}`: false,
	} {
		fields := map[string]json.RawMessage{}
		require.NoError(t, json.Unmarshal([]byte(payloads[1]), &fields))
		require.NoError(t, json.Unmarshal([]byte(set), &fields))
		changed, err := json.Marshal(fields)
		require.NoError(t, err)
		e, ok := ReadEntry(changed)
		require.True(t, ok, set)
		require.Equal(t, intact, e.Intact, set)
		require.NotEmpty(t, e.Device, set)
	}
	for _, strange := range []string{"", "null", "[]", `{"path":"a.txt"}`, `{"digest":"0"}`, `{"path":1,"digest":"0"}`} {
		_, ok := ReadEntry([]byte(strange))
		require.False(t, ok, strange)
	}
}

// The name of a cut differs where passages may.
func TestCutNames(t *testing.T) {
	seen := map[string]bool{}
	model := func(length int) *encode.Config {
		c := new(encode.Config)
		c.Document.Length, c.Tokenizer = length, new(tokenizer.Tokenizer)
		return c
	}
	for _, how := range []encode.Splitting{
		{}, {Window: 9}, {Window: 8}, {Window: 9, Overlap: 1}, {Window: 9, Model: model(300)}, {Window: 9, Model: model(512)},
		{Window: 9, By: encode.ByWords}, {Window: 9, By: encode.BySentences}, {Model: model(300)}, {Model: model(512)},
	} {
		require.False(t, seen[Cut(how)], Cut(how))
		seen[Cut(how)] = true
	}
}

func TestDevice(t *testing.T) {
	root := t.TempDir()
	write(t, root, "sub/a.md", "a")
	own, err := Device(root)
	require.NoError(t, err)
	if runtime.GOOS != "windows" { // where a volume may have no number
		require.NotEmpty(t, own)
	}
	for _, path := range []string{"sub", "sub/a.md"} {
		device, err := Device(filepath.Join(root, path))
		require.NoError(t, err)
		require.Equal(t, own, device)
	}
	_, err = Device(filepath.Join(root, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil || runtime.GOOS == "windows" || !strings.Contains(string(mounts), " /proc ") {
		t.Skip("there is no other file system to look at")
	}
	other, err := Device("/proc")
	require.NoError(t, err)
	require.NotEqual(t, own, other)
	require.NoError(t, os.Symlink("/proc", filepath.Join(root, "link")))
	link, err := Device(filepath.Join(root, "link"))
	require.NoError(t, err)
	require.Equal(t, own, link)
}
