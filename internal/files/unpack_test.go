package files

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// plain as xz compresses it, and with a dictionary of 256 MiB.
const (
	xzLines = "fd377a585a000004e6d6b4460200210116000000742fe5a30100076f6e650a74776f0a0051ab9eaf5775704900012008bb19" +
		"d9bb1fb6f37d010000000004595a"
	xzBigDictionary = "fd377a585a000004e6d6b44602002101200000000988a5760100076f6e650a74776f0a0051ab9eaf5775704900012008bb19" +
		"d9bb1fb6f37d010000000004595a"
)

func packGzip(t testing.TB, text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, text)
	require.NoError(t, errors.Join(err, z.Close()))
	return b.String()
}

func packZstd(t testing.TB, text string, o ...zstd.EOption) string {
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b, o...)
	require.NoError(t, err)
	_, err = io.WriteString(z, text)
	require.NoError(t, errors.Join(err, z.Close()))
	return b.String()
}

func packXZ(t testing.TB) string {
	b, err := hex.DecodeString(xzLines)
	require.NoError(t, err)
	return string(b)
}

func unpackAll(data, name string) (string, error) {
	r, err := Unpack(strings.NewReader(data), name)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r)
	return string(b), err
}

const plain = "one\ntwo\n"

// The first bytes tell how a file is compressed, whatever its name, and all of its parts count.
func TestUnpack(t *testing.T) {
	zst, xzs := packZstd(t, plain), packXZ(t)
	skip := "\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
	for name, c := range map[string]struct{ data, want string }{
		"a.txt": {plain, plain}, "a.gz": {packGzip(t, plain), plain}, "b.txt": {packGzip(t, plain), plain},
		"members.gz": {packGzip(t, plain) + packGzip(t, plain), plain + plain},
		"a.zst":      {zst, plain}, "frames.zst": {zst + skip + zst, plain + plain}, "skip.ZST": {skip + zst, plain},
		"a.xz": {xzs, plain}, "streams.xz": {xzs + "\x00\x00\x00\x00" + xzs, plain + plain}, "c.gz": {xzs, plain},
		"": {"", ""},
	} {
		got, err := unpackAll(c.data, name)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

// What is damaged, cut short, or not compressed although its name says so is an error.
func TestUnpackDamaged(t *testing.T) {
	packed := map[string]string{"a.gz": packGzip(t, plain), "a.zst": packZstd(t, plain), "a.xz": packXZ(t)}
	for name, data := range packed {
		for n := range len(data) {
			_, err := unpackAll(data[:n], name)
			require.ErrorIs(t, err, ErrPacked, "%s, %d bytes", name, n)
		}
		_, err := unpackAll(data[:len(data)-2], name)
		require.ErrorContains(t, err, "is cut short")
		_, err = unpackAll(data+"rest of something else", name)
		require.ErrorIs(t, err, ErrPacked, name)
		_, err = unpackAll("plain text", name)
		require.ErrorContains(t, err, "the bytes are neither of gzip nor of zstd or xz")
	}
	failed := errors.New("the disk is gone")
	for _, data := range packed {
		_, err := io.ReadAll(func() io.Reader {
			r, err := Unpack(io.MultiReader(strings.NewReader(data[:len(data)-3]), failing{failed}), "")
			require.NoError(t, err)
			return r
		}())
		require.ErrorIs(t, err, failed)
		require.NotErrorIs(t, err, ErrPacked)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Unpacking takes no more memory than is promised: what wants more is refused by its header.
func TestUnpackBounds(t *testing.T) {
	wide := "\x28\xb5\x2f\xfd\x00\xf8" + "\x01\x00\x00" // a window of 2³⁵ bytes or more
	_, err := unpackAll(wide, "a.zst")
	require.ErrorContains(t, err, "needs more than 128 MiB")
	usual := packZstd(t, strings.Repeat(plain, 1000), zstd.WithWindowSize(maxWindow))
	got, err := unpackAll(usual, "a.zst")
	require.NoError(t, err)
	require.Len(t, got, 1000*len(plain))
	big, err := hex.DecodeString(xzBigDictionary)
	require.NoError(t, err)
	_, err = unpackAll(string(big), "a.xz")
	require.ErrorContains(t, err, "needs more than 64 MiB")
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte(packGzip(f, plain)))
	f.Add([]byte(packZstd(f, plain)))
	f.Add([]byte(packXZ(f)))
	f.Add([]byte("\x28\xb5\x2f\xfd"))
	f.Add([]byte("\xfd7zXZ\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Unpack(bytes.NewReader(data), "fuzz")
		if err == nil {
			_, err = io.CopyN(io.Discard, r, 1<<20)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			require.ErrorIs(t, err, ErrPacked)
		}
	})
}

func TestCells(t *testing.T) {
	var got []string
	for _, c := range SplitCells(nil, []byte("\"a\t\tb\" \\t\t")) {
		got = append(got, string(c))
	}
	require.Equal(t, []string{`"a`, "", `b" \t`, ""}, got)
}

func TestUnmarked(t *testing.T) {
	for in, want := range map[string]string{"\ufeff{}": "{}", "{}": "{}", "": "", "\xef": "\xef", "\ufeff": ""} {
		r, err := SkipByteOrderMark(strings.NewReader(in))
		require.NoError(t, err)
		b, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}
}
