package encode

import (
	"context"
	"fmt"
	"slices"
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
	e.backend, e.threads = &server{c}, c.Concurrency()
	e.config = Config{
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

// ready implements backend: the server makes ids of the text.
func (s *server) ready(_ Role, text string) (sequence, error) { return sequence{}, utf8Text(text) }

// ahead implements backend.
func (s *server) ahead(*chunk) (bytes, goroutines int) { return 0, 1 }

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

// added implements backend.
func (s *server) added(sequence) []Token { return nil }

// joins implements backend: a request is of one role.
func (s *server) joins(batch []*chunk, c *chunk) bool {
	n := len(c.texts)
	for _, other := range batch {
		n += len(other.texts)
	}
	return c.of.role == batch[0].of.role && n <= s.c.Batch()
}

// compute implements backend.
func (s *server) compute(ctx context.Context, r Role, batch []*chunk) error {
	var texts []string
	for _, c := range batch {
		for i := range c.texts {
			if t := &c.texts[i]; !t.empty {
				texts = append(texts, t.text.Text)
			}
		}
	}
	all, err := s.c.Encode(ctx, texts, r == Query)
	if err != nil {
		return err
	}
	for _, c := range batch {
		for i := range c.texts {
			if t := &c.texts[i]; !t.empty {
				t.vectors = slices.Concat(all[0]...)
				all = all[1:]
			}
		}
	}
	return nil
}
