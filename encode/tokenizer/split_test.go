package tokenizer

import (
	"testing"

	"github.com/plaid-ir/plaid/encode/tokenizer/internal/chars"
	"github.com/stretchr/testify/require"
)

func parts(m matcher, text string) (out []string) {
	for at := 0; at < len(text); {
		i, j := m.find([]byte(text), at)
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
	llama, qwen := &scanner{digits: 3}, &scanner{digits: 1}
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
