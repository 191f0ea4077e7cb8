package encode

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/plaid-ir/plaid/encode/engine"
	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/encode/remote"
	"github.com/plaid-ir/plaid/encode/tokenizer"
	"github.com/plaid-ir/plaid/encode/weights"
	"github.com/plaid-ir/plaid/kernels/transformer"
)

// onDevice is the [engine.Engine] of a model on a device.
type onDevice struct {
	transformer.Model
	about transformer.About
}

// halver is an engine that can return only the vectors of some ids, as float16; see
// [transformer.Model].
type halver interface {
	EncodeHalves(ctx context.Context, dst []byte, b engine.Batch, kept []int32) error
}

// A device works best with large batches in several calls: while it computes one batch, the
// vectors of the batch before are copied from it, and the next batch is prepared.
const (
	deviceChunk   = 8192 // ids
	deviceWorkers = 8
)

func (d *onDevice) Dim() int     { return d.about.Dim }
func (d *onDevice) Chunk() int   { return min(deviceChunk, d.about.Tokens) }
func (d *onDevice) Workers() int { return deviceWorkers }

// openDevice loads the weights onto the device.
func (l *local) openDevice(ctx context.Context, dir string, o *Options) (*transformer.About, error) {
	c, w, err := weights.Load(l.config)
	if err != nil {
		return nil, err
	}
	m, err := transformer.OnDevice(ctx, o.OpenedDevice, c, w, transformer.Options{Memory: o.DeviceMemory})
	if err != nil {
		if kind := modelDirError(err); kind != err {
			return nil, &modeldir.ModelError{Path: dir, Err: kind}
		}
		return nil, fmt.Errorf("%w: %s on %s: %w", engine.ErrDevice, dir, o.OpenedDevice.Info().Name, err)
	}
	d := &onDevice{m, m.About()}
	l.engine = d
	if err := l.resolveDimension("weights"); err != nil {
		_ = m.Close()
		return nil, err
	}
	return &d.about, nil
}

// server is the backend of a server, which returns vectors and nothing else.
type server struct{ client *remote.Client }

// openRemote connects to a server, and makes a configuration from its answer.
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
			Query:     modeldir.Role{Marker: -1, Prompt: ro.QueryPrefix},
			Document:  modeldir.Role{Marker: -1, Prompt: ro.DocumentPrefix},
			Expand:    modeldir.Expansion{Mask: -1},
			KeepSpace: true,
		},
		Backend:     Remote,
		Precision:   F32.String(),
		Fingerprint: c.Fingerprint(),
	}
	return nil
}

func (s *server) dimension() int { return s.client.Dim() }

func (s *server) close() error { return s.client.Close() }

// prepare returns an empty sequence: the server tokenizes the text.
func (s *server) prepare(_ Role, text string) (sequence, error) {
	return sequence{}, checkUTF8Text(text)
}

func (s *server) readAhead(*chunk) (bytes, goroutines int) { return 0, 1 }

// checkUTF8Text returns an error for a text that the tokenizers here would refuse too.
func checkUTF8Text(text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("%w: not valid UTF-8", tokenizer.ErrText)
	}
	return nil
}

func (s *server) isFull(c *chunk) bool { return len(c.texts) >= s.client.Batch() }

// tokenize returns no tokens: the server does not report them.
func (s *server) tokenize(_ Role, text string) ([]Token, error) { return nil, checkUTF8Text(text) }

func (s *server) queryTokens(sequence) []Token { return nil }

// canJoin requires one role, since a request has one.
func (s *server) canJoin(batch []*chunk, c *chunk) bool {
	n := len(c.texts)
	for _, other := range batch {
		n += len(other.texts)
	}
	return c.call.role == batch[0].call.role && n <= s.client.Batch()
}

// compute requests the vectors of all texts of a batch that are not empty.
func (s *server) compute(ctx context.Context, r Role, batch []*chunk) error {
	var texts []string
	for _, c := range batch {
		for i := range c.texts {
			if t := &c.texts[i]; !t.empty {
				texts = append(texts, t.text.Text)
			}
		}
	}
	encoded, err := s.client.Encode(ctx, texts, r == Query)
	if err != nil {
		return err
	}
	for _, c := range batch {
		for i := range c.texts {
			if t := &c.texts[i]; !t.empty {
				t.vectors = slices.Concat(encoded[0]...)
				encoded = encoded[1:]
			}
		}
	}
	return nil
}
