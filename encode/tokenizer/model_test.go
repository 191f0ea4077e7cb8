package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
)

// Long words are merged with a heap, short ones by scans: to the same symbols.
func TestMergeLong(t *testing.T) {
	f := loadFixtures(t)
	tok, err := Parse(f.file(t, f.variants[len(f.variants)-2]))
	require.NoError(t, err)
	m := tok.model.(*bpe)
	r := rand.New(rand.NewPCG(3, 4))
	letters := "etaoinshr the index ee"
	for range 3000 {
		word := make([]byte, 1+r.IntN(150))
		for i := range word {
			word[i] = letters[r.IntN(len(letters))]
		}
		var a, b bpeScratch
		m.splitSymbols(&a, word)
		m.splitSymbols(&b, word)
		m.mergeShort(&a)
		m.mergeLong(&b)
		require.Equal(t, a.ids, b.ids, "%q", word)
		require.Equal(t, a.spans, b.spans, "%q", word)
	}
}

// Goroutines share the cache; its bound holds whatever comes.
func TestConcurrent(t *testing.T) {
	f := loadFixtures(t)
	for _, v := range f.variants[len(f.variants)-3:] {
		name := text(t, v["name"])
		tok, err := Parse(f.file(t, v))
		require.NoError(t, err)
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := range f.lines {
					i = (i*7 + g*31) % len(f.lines)
					ids, err := tok.EncodeIDs(nil, f.lines[i])
					if err != nil || !slices.Equal(ids, f.golden[name][i]) {
						t.Errorf("%s, line %d: %v %v", name, i, ids, err)
					}
				}
			})
		}
		wg.Wait()
	}
}

// Words that share a place in the cache do not get each other's ids.
func TestCache(t *testing.T) {
	f := loadFixtures(t)
	tok, err := Parse(f.file(t, f.variants[len(f.variants)-3]))
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(5, 6))
	for range 3 * cacheSlots {
		var b strings.Builder
		for range 1 + r.IntN(6) {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
		ids, err := tok.EncodeIDs(nil, b.String())
		require.NoError(t, err)
		tokens, err := tok.Encode(b.String()) // does not use the cache
		require.NoError(t, err)
		require.True(t, equalTokens(tokens, ids), b.String())
	}
}

// Long words are counted in characters, not in bytes.
func TestLongestWord(t *testing.T) {
	tok, err := Parse([]byte(`{"model":{"type":"WordPiece","max_input_chars_per_word":3,"vocab":{"[UNK]":0,"é":1,"##é":2}},"pre_tokenizer":{"type":"WhitespaceSplit"}}`))
	require.NoError(t, err)
	ids, err := tok.EncodeIDs(nil, "ééé éééé")
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 2, 0}, ids)
}

func parts(m matcher, text string) (out []string) {
	for at := 0; at < len(text); {
		i, j := m.findMatch([]byte(text), at)
		if i < 0 {
			break
		}
		out = append(out, text[i:j])
		at = j
	}
	return out
}

func TestScanners(t *testing.T) {
	chars.Load()
	llama, qwen := &scanner{maxDigits: 3}, &scanner{maxDigits: 1}
	for _, c := range []struct {
		s    *scanner
		text string
		want []string
	}{
		{gpt2, "it's  12345 é's\t\n x   ", []string{"it", "'s", " ", " 12345", " é", "'s", "\t\n", " x", "   "}},
		{gpt2, "a\n\n", []string{"a", "\n\n"}},
		{gpt2, "a\nb \u00a0c", []string{"a", "\n", "b", " ", "\u00a0", "c"}},
		{gpt2, "'S 'll'''re!? ?", []string{"'", "S", " '", "ll", "'''", "re", "!?", " ?"}},
		{llama, "IT'S 'ſ 12345 $x\t y!\r\n\n  z", []string{"IT", "'S", " '", "ſ", " ", "123", "45", " $", "x", "\t", " y", "!\r\n\n", " ", " z"}},
		{llama, "a \n \n b  ", []string{"a", " \n \n", " b", "  "}},
		{qwen, "1234", []string{"1", "2", "3", "4"}},
	} {
		require.Equal(t, c.want, parts(c.s, c.text), "%q", c.text)
	}
}

func TestSimpleRegex(t *testing.T) {
	chars.Load()
	for regex, want := range map[string][]string{
		`\s+`: {" ", "  ", "\n"}, `\s`: {" ", " ", " ", "\n"}, ` {2,}`: {"  "}, `b`: {"b", "b"}, `b+`: {"bb"}, `ab`: {"ab"}, `\p{L}{2,}`: {"abb"},
	} {
		m, ok := simpleRegex(regex)
		require.True(t, ok, regex)
		require.Equal(t, want, parts(m, "a abb  c\n1"), regex)
	}
	for _, regex := range []string{"", ".", "a|b", "a*", "a{2}", "a{0,}", "a{02,}", "a{2,3}", "ab+", "[a]", `\d`, `\\`, "^a", "a$", "(a)"} {
		_, ok := simpleRegex(regex)
		require.False(t, ok, regex)
	}
}
