package encode

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/remote"
	"github.com/plaid-ir/plaid/encode/tokenizer"
)

// server is a model of which only the vectors are seen.
type server struct{ c *remote.Client }

// openRemote asks a server.
func (e *Encoder) openRemote(ctx context.Context, o *Options) error {
	ro := *o.Remote
	if o.Threads > 0 {
		ro.Concurrency = o.Threads
	}
	if ro.Logger == nil {
		ro.Logger = o.Logger
	}
	c, err := remote.New(ctx, ro)
	if err != nil {
		return err
	}
	e.b, e.threads = &server{c}, c.Concurrency()
	e.c = Config{
		Config: modeldir.Config{
			Dir: c.URL(), Dim: c.Dim(), Origin: map[string]string{"dim": c.URL()},
			Query: modeldir.Role{Marker: -1, Prompt: ro.QueryPrefix}, Document: modeldir.Role{Marker: -1, Prompt: ro.DocumentPrefix},
			Expand: modeldir.Expansion{Mask: -1}, KeepSpace: true,
		},
		Backend: Remote, Precision: F32.String(), Fingerprint: c.Fingerprint(),
	}
	return nil
}

func (s *server) dim() int { return s.c.Dim() }

func (s *server) close() error { return s.c.Close() }

// add implements backend: the server makes ids of the text.
func (s *server) add(_ *chunk, _ Role, text string) (sequence, error) {
	return sequence{}, utf8Text(text)
}

// utf8Text refuses what the tokenizers here would refuse too.
func utf8Text(text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("%w: not valid UTF-8", tokenizer.ErrText)
	}
	return nil
}

// full implements backend.
func (s *server) full(c *chunk) bool { return len(c.texts) >= s.c.Batch() }

// tokens implements backend: the server keeps them to itself.
func (s *server) tokens(_ Role, text string) ([]Token, error) { return nil, utf8Text(text) }

// compute implements backend.
func (s *server) compute(ctx context.Context, r Role, c *chunk) error {
	var texts []string
	for i := range c.texts {
		if t := &c.texts[i]; !t.empty {
			texts = append(texts, t.text.Text)
		}
	}
	all, err := s.c.Encode(ctx, texts, r == Query)
	if err != nil {
		return err
	}
	d := s.dim()
	n := 0
	for _, v := range all {
		n += len(v) * d
	}
	c.memory = append(c.memory[:0], make([]float32, n)...)
	rest := c.memory
	for i := range c.texts {
		t := &c.texts[i]
		if t.empty {
			continue
		}
		v := all[0]
		all = all[1:]
		t.vectors, rest = rest[:len(v)*d:len(v)*d], rest[len(v)*d:]
		for j, x := range v {
			copy(t.vectors[j*d:], x)
		}
	}
	return nil
}
