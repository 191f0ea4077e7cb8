package tokenizer

import (
	"bufio"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/realdata"
)

// python is the Python package tokenizers at work.
type python struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startPython(t *testing.T) *python {
	program := os.Getenv("PLAID_TOKENIZERS_PYTHON")
	if program == "" {
		t.Skip("PLAID_TOKENIZERS_PYTHON does not name a Python that has the package tokenizers 0.23.3")
	}
	cmd := exec.Command(program, filepath.Join("testdata", "answer.py"))
	cmd.Env = append(os.Environ(), "TOKENIZERS_PARALLELISM=false")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &python{in, bufio.NewReaderSize(out, 1<<20)}
}

func (p *python) send(t *testing.T, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	_, err = p.in.Write(append(b, '\n'))
	require.NoError(t, err)
}

func (p *python) ask(t *testing.T, lines []string) [][]int32 {
	t.Helper()
	p.send(t, map[string]any{"lines": lines})
	b, err := p.out.ReadBytes('\n')
	require.NoError(t, err)
	var a struct{ IDs [][]int32 }
	require.NoError(t, json.Unmarshal(b, &a))
	return a.IDs
}

// TestAgainstPython compares with the Python package on lines made here: every
// code point in a few surroundings, and random ones. PLAID_TOKENIZERS_LINES is
// the number of random lines for each large tokenizer (20,000), PLAID_TOKENIZERS_SEED
// their seed.
func TestAgainstPython(t *testing.T) {
	p := startPython(t)
	number := func(name string, def int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return def
	}
	random, seed := number("PLAID_TOKENIZERS_LINES", 20000), number("PLAID_TOKENIZERS_SEED", 1)
	f := loadFixtures(t)
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	every := everyCharacter()
	for _, file := range []string{
		"colbert-mini/tokenizer.json", "colbert-nano/tokenizer.json",
		"tokenizers/bpe-modernbert-like.json", "tokenizers/unigram-xlmr-like.json",
	} {
		t.Run(file, func(t *testing.T) {
			b, err := os.ReadFile(realdata.Path(t, "models", filepath.FromSlash(file)))
			require.NoError(t, err)
			against(t, p, b, append(randomLines(r, f.lines, random), every...))
		})
	}
	for _, v := range f.variants {
		t.Run(text(t, v["name"]), func(t *testing.T) {
			against(t, p, f.file(t, v), randomLines(r, f.lines, random/4))
		})
	}
	for name, file := range kindsOf(t) {
		t.Run("kind "+name, func(t *testing.T) {
			lines := randomLines(r, f.lines, random/2)
			for i := range lines { // words of code, and emojis
				if i%3 == 0 {
					lines[i] = strings.NewReplacer("a", "(x)=>{", "e", "\n\t\t", "o", "👩🏽‍💻", "i", "한국어", "n", "العربية").Replace(lines[i])
				}
			}
			against(t, p, file, append(lines, every[:len(every)/8]...))
		})
	}
	for _, v := range f.variants {
		if name := text(t, v["name"]); strings.HasPrefix(name, "nf") || name == "lower, strip accents" || name == "unigram" || name == "charsmap and bert" || name == "single digits" {
			t.Run(name+", every character", func(t *testing.T) { against(t, p, f.file(t, v), every) })
		}
	}
}

func against(t *testing.T, p *python, file []byte, lines []string) {
	tok, err := Parse(file)
	require.NoError(t, err)
	p.send(t, map[string]string{"tokenizer": string(file)})
	for part := range slices.Chunk(lines, 2000) {
		compare(t, tok, "lines", part, p.ask(t, part))
	}
}

// everyCharacter is all code points, sixteen a line, each beside letters and
// marks of several kinds.
func everyCharacter() []string {
	var lines []string
	var b strings.Builder
	n := 0
	for r := rune(0); r <= 0x10FFFF; r++ {
		if r >= 0xD800 && r < 0xE000 || r >= 0x30000 && r < 0xE0000 && r%61 != 0 || r > 0xE1000 && r%61 != 0 {
			continue
		}
		c := string(r)
		b.WriteString("x" + c + "y " + c + "é" + c + "\u0301\u0316 1" + c + "\u1100" + c + "\u0301\u0915\u094d" + c + "\u0301©\u200d" + c + "\u0301|" + c + "a")
		if n++; n%16 == 0 {
			lines = append(lines, b.String())
			b.Reset()
		}
	}
	return append(lines, b.String())
}

// randomLines are of words, characters of all kinds, and what splits them.
func randomLines(r *rand.Rand, texts []string, n int) []string {
	words := strings.Fields(strings.Join(texts, " "))
	odd := []string{
		" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\u00a0", "\u2028", "\u3000", "\x00", "\x01", "\u200b", "\u200c", "\u200d", "\ufeff", "\u00ad", "\ufffd",
		"\u0301", "\u0316", "\u0327", "\u0345", "\u3099", "\u093c", "\u094d", "\u0e31", "\u20dd", "\ufe0f", "\U0001D165", "\U0001D16E", "\U0001E000",
		"\u1100", "\u1161", "\u11a8", "\uac00", "\uac01", "\u0600", "\u0915", "\u0937", "\u0c15", "\u0c4d", "©", "®", "❤", "👩", "🇩", "🏽", "\u0130", "ſ", "ß", "Σ", "K", "Å",
		"'s", "'S", "'ll", "'RE", "'ſ", "''", "'", "[MASK]", "<mask>", "[Q] ", "[D] ", "[CLS]", "</s>", "<s>", "<unk>", "[UNK]", "NAME", "|||", "|||IP_ADDRESS|||", "▁", "_", "the", "the ",
		"日", "本語", "가나", "ﬁ", "①", "㍿", "ﷺ", "½", "Ⅷ", "٣", "१", "1", "23", "4567", "a", "B", "é", "e\u0301", "ộ", "-", "--", ".", "...", "$", "^", "`", "~", "<", "«", "…", "—",
	}
	lines := make([]string, n)
	for i := range lines {
		var b strings.Builder
		kind := r.IntN(4)
		for range 1 + r.IntN(24) {
			switch x := r.IntN(10); {
			case kind == 0 && x < 6 || kind == 1 && x < 3:
				b.WriteString(words[r.IntN(len(words))] + " ")
			case x < 8 && kind != 3:
				b.WriteString(odd[r.IntN(len(odd))])
			default:
				c := rune(r.IntN(0x3000))
				switch r.IntN(8) {
				case 0:
					c = rune(r.IntN(0x110000))
				case 1:
					c = rune(0x10000 + r.IntN(0x10000))
				case 2:
					c = rune(r.IntN(0x10000))
				case 3:
					c = rune(0x300 + r.IntN(0x70))
				}
				if c < 0xD800 || c >= 0xE000 {
					b.WriteRune(c)
				}
			}
		}
		lines[i] = b.String()
	}
	return lines
}
