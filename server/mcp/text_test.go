package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A snippet is a part of the text, of whole characters, and has a word that is wanted if the
// text has one that fits.
func TestSnippet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"dog", "Über", "a", "…", "日本", "longerword", "\n"})).Draw(t, "text"), " ")
		most := rapid.IntRange(40, 200).Draw(t, "most")
		part, start := snippet(text, matchesOfWords("über dog?", text), most)
		require.True(t, utf8.ValidString(part))
		require.LessOrEqual(t, len(part), most)
		require.True(t, strings.HasPrefix(text[start:], part))
		if strings.Contains(text, "dog") || strings.Contains(text, "Über") {
			require.True(t, strings.Contains(part, "dog") || strings.Contains(part, "Über"), "%q of %q", part, text)
		}
		if len(text) <= most {
			require.Equal(t, text, part)
		}
	})
}

// Pieces of a document take the room that there is, whatever its fields are.
func TestPiece(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fields := rapid.MapOfN(rapid.StringN(1, 4, 8), rapid.OneOf(
			rapid.Just[any](1.5), rapid.Just[any](nil), rapid.Just[any](strings.Repeat("ä", 3000)), rapid.Just[any](strings.Repeat("x", 20000)),
			rapid.Just[any](make([]int, 9000)),
		), 0, 6).Draw(t, "fields")
		m, err := json.Marshal(fields)
		require.NoError(t, err)
		room := TextBytes
		doc, err := fitDocument(m, rapid.IntRange(0, 30000).Draw(t, "start"), &room)
		require.NoError(t, err)
		text, err := json.Marshal(doc)
		require.NoError(t, err)
		require.LessOrEqual(t, len(text), TextBytes+len(fields)*(2*shortField+64)+100)
		hit, err := newHitOut(&searchHit{metadata: m}, "x", SnippetBytes)
		require.NoError(t, err)
		text, err = json.Marshal(hit)
		require.NoError(t, err)
		require.LessOrEqual(t, len(text), SnippetBytes+maxShortFields*3*shortField+1000)
	})
}

// A document of very many fields is cut, too, and still shows some of its text.
func TestPieceOfManyFields(t *testing.T) {
	for name, value := range map[string]any{"number": 1.5, "short": "word", "long": strings.Repeat("x", 500), "list": make([]int, 500)} {
		fields := map[string]any{"text": strings.Repeat("y", 5000)}
		for i := range 300 {
			fields[fmt.Sprintf("column%03d", i)] = value
		}
		m, err := json.Marshal(fields)
		require.NoError(t, err)
		room := 600
		doc, err := fitDocument(m, 0, &room)
		require.NoError(t, err)
		require.NotEmpty(t, doc.Fields["text"], name)
		require.Equal(t, len(fields), len(doc.Fields)+doc.Left, name)
		text, err := json.Marshal(doc)
		require.NoError(t, err)
		require.Less(t, len(text), 600+(maxShortFields+1)*(shortField+32), name)
	}
}

func FuzzShown(f *testing.F) {
	f.Add([]byte(`{"_id":"x","text":"a b c","n":1e400}`), "a")
	f.Add([]byte(`[]`), "")
	f.Add([]byte(`null`), "")
	f.Fuzz(func(t *testing.T, m []byte, words string) {
		hit, err := newHitOut(&searchHit{metadata: m}, words, SnippetBytes)
		if err == nil && len(hit.Text) > SnippetBytes {
			t.Fatalf("%d bytes", len(hit.Text))
		}
		room := TextBytes
		_, _ = fitDocument(m, 3, &room)
	})
}

// Connect answers one agent on a transport.
func (s *Server) Connect(ctx context.Context, t sdk.Transport) (*sdk.ServerSession, error) {
	return s.sdk.Connect(ctx, t, nil)
}
