// Package keywords finds documents by the words of their payloads, with BM25.
//
//	[Open] → [Index]     opens what was derived from an index, or will be
//	[Index.Sync]         brings it up to a snapshot of the index
//	[Index.Search]       the best documents for a text
//
// It is derived data: a file next to the index, made from the payloads and never the source of
// anything. It is made by the first [Index.Sync], which also replaces it if it is damaged or has
// other settings; it may be deleted at any time. A process that only reads the index leaves the
// file as it is ([Options.Write]).
//
// The file knows which state of which index it shows ([storage.Stamp]). A snapshot of
// another state is compared with it document by document, by the checksums of the
// payloads, and what differs is read; within one process, changes of an index that is
// open are followed without that. So the file is right after a restored backup or a
// rebuilt index, too.
//
// A document is found by its ordinal, as in searches by vectors.
//
// # Scores
//
// BM25 as of Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and
// Beyond (2009), section 3, in the form of Lucene: a term that is tf times in a document
// of dl tokens adds
//
//	weight · ln(1 + (N − df + ½)/(df + ½)) · tf / (tf + k1·(1 − b + b·dl/avgdl))
//
// with weight how often it is in the query, and N, df and avgdl counted over the live
// documents that have text: exactly, so that scores depend on nothing but these
// documents, however they came in.
package keywords

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/plaid-ir/plaid/index/metadata/condition"
	"github.com/plaid-ir/plaid/storage"
)

// Errors, beside [ErrSyntax], [storage.ErrLocked] and [storage.ErrClosed]; test with
// errors.Is.
var (
	// ErrOption: an option out of range.
	ErrOption = errors.New("bad option of keywords")
	// ErrNotSynced: a search before the first Sync of a file that is not there, is
	// damaged or has other settings.
	ErrNotSynced = errors.New("keywords are not made yet: sync them with the index")
	// ErrDamaged: the file is. The next Sync makes it anew.
	ErrDamaged = errors.New("keywords are damaged: sync them with the index again")
)

// Tokenizers, and languages of stemmers and stop words.
const (
	// Unicode61 finds words: runs of letters and digits, capital and small letters
	// alike, without accents. The name is that of SQLite's tokenizer for the same.
	Unicode61 = "unicode61"
	// Trigram finds parts of words: each three characters in a row. For languages
	// without blanks, and for code. Its files are several times larger.
	Trigram = "trigram"
	// English is Porter's second stemmer, and the stop words of Lucene.
	English = "english"
)

// Settings say how text becomes terms. A file has those that it was made with.
type Settings struct {
	Tokenizer string `json:"tokenizer"`            // Unicode61 ("") or Trigram
	Stemmer   string `json:"stemmer,omitempty"`    // "": none; or English
	StopWords string `json:"stop_words,omitempty"` // "": none; or English
	// Fields are the ones of JSON objects that are searched, named as in conditions
	// ("author.name"; the quotes of "publication date" may be left out); none: all values.
	Fields []string `json:"fields,omitempty"`
	// IDs has the ids of documents searched beside their payloads, whatever Fields are.
	IDs bool `json:"ids,omitempty"`
}

// Check completes the settings.
func (s Settings) Check() (Settings, error) {
	if s.Tokenizer == "" {
		s.Tokenizer = Unicode61
	}
	switch {
	case s.Tokenizer != Unicode61 && s.Tokenizer != Trigram:
		return s, fmt.Errorf("%w: tokenizer %q: %s or %s", ErrOption, s.Tokenizer, Unicode61, Trigram)
	case s.Stemmer != "" && s.Stemmer != English:
		return s, fmt.Errorf("%w: stemmer %q: %s or none", ErrOption, s.Stemmer, English)
	case s.StopWords != "" && s.StopWords != English:
		return s, fmt.Errorf("%w: stop words %q: %s or none", ErrOption, s.StopWords, English)
	case s.Tokenizer == Trigram && (s.Stemmer != "" || s.StopWords != ""):
		return s, fmt.Errorf("%w: stemmer and stop words are for tokenizer %s", ErrOption, Unicode61)
	case slices.Contains(s.Fields, ""):
		return s, fmt.Errorf("%w: a field without name", ErrOption)
	}
	s.Fields = slices.Clone(s.Fields)
	for i, name := range s.Fields {
		f, err := condition.ParseField(name)
		if err != nil { // a key that a condition has in quotes
			f = condition.MakeField(name)
		}
		s.Fields[i] = strings.Join(f.Keys(), ".")
	}
	return s, nil
}

func (s Settings) equalTo(o Settings) bool {
	return s.Tokenizer == o.Tokenizer && s.Stemmer == o.Stemmer && s.StopWords == o.StopWords && s.IDs == o.IDs && slices.Equal(s.Fields, o.Fields)
}

// defaultMemory is the budget of a Sync for documents that are not written yet.
const defaultMemory = 64 << 20

// Options for Open; nil is the zero value.
type Options struct {
	// Settings of the file; nil: those that it has, or [Unicode61] over all values.
	// Sync makes a file of other settings anew.
	Settings *Settings
	// Write keeps the file locked for Sync, as for a program that owns the index. Without it
	// nothing is written next to the index, and any number of processes may read: if the file is
	// missing, or shows another state of the index, Sync works in a temporary file ([os.TempDir]),
	// which Close removes.
	Write bool
	// LockTimeout is how long to wait for another process; 0: not at all.
	LockTimeout time.Duration
	// Memory in bytes that Sync uses for documents before it writes them;
	// 0: [defaultMemory].
	Memory int64
	// Logger hears of what is made anew; nil: nobody does.
	Logger *slog.Logger
	// Progress, where set, is told how many documents Sync has read of how many.
	Progress func(done, total int64)
}

// Path is where the keywords of an index are.
func Path(index string) string { return index + ".keywords" }

// Index is an open file of keywords. It is safe for concurrent use: searches go on
// while Sync works, and see its result when it returns.
type Index struct {
	path    string
	options Options
	log     *slog.Logger

	syncing chan struct{} // holds one while Sync works

	mu        sync.RWMutex         // held for reading while the file is used, for writing to replace it
	file      *storage.DerivedFile // nil: there is none that can be used
	temporary string               // its name if it is a temporary one
	closed    bool

	cache        sync.Mutex
	lastSnapshot *snapshot
	damaged      bool      // the file, as a search found
	settings     *Settings // that it had when they were last read; nil: they never were

	lastSync syncPoint // of the last Sync
}

// Open opens the file at path, which need not be there: see [Path]. One that is
// damaged, or of other settings than asked for, is left for Sync to replace, with Write.
func Open(ctx context.Context, path string, o *Options) (*Index, error) {
	ix := &Index{path: path, syncing: make(chan struct{}, 1)}
	if o != nil {
		ix.options = *o
	}
	if ix.options.Settings != nil {
		s, err := ix.options.Settings.Check()
		if err != nil {
			return nil, err
		}
		ix.options.Settings = &s
	}
	if ix.options.Memory < 0 || ix.options.LockTimeout < 0 {
		return nil, fmt.Errorf("%w: a negative limit", ErrOption)
	}
	if ix.options.Memory == 0 {
		ix.options.Memory = defaultMemory
	}
	if ix.log = ix.options.Logger; ix.log == nil {
		ix.log = slog.New(slog.DiscardHandler)
	}
	if err := ix.reopenExisting(ctx); err != nil {
		return nil, err
	}
	return ix, nil
}

// Path is the file.
func (ix *Index) Path() string { return ix.path }

// Close closes the file when the searches are done. It may be called more than once.
func (ix *Index) Close() error {
	ix.syncing <- struct{}{}
	defer func() { <-ix.syncing }()
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.closed = true
	return ix.closeFile()
}

// Rest releases the file next to the index until the next Sync, so that others may write it. A
// temporary file stays open.
func (ix *Index) Rest() error {
	ix.syncing <- struct{}{}
	defer func() { <-ix.syncing }()
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.options.Write || ix.temporary != "" {
		return nil
	}
	return ix.closeFile()
}

// Temporary reports whether the keywords are in a temporary file, because the one next to the index
// did not show the last snapshot and may not be written.
func (ix *Index) Temporary() bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.temporary != ""
}

// Info describes the file.
type Info struct {
	Settings Settings `json:"settings"`   // how text becomes words
	Docs     int      `json:"docs"`       // ordinals that have text: each passage counts by itself
	Tokens   uint64   `json:"tokens"`     // of these
	Segments int      `json:"segments"`   // runs of postings that were written together
	Bytes    int64    `json:"file_bytes"` // of the file
}

// Info returns what the last Sync made.
func (ix *Index) Info() (Info, error) {
	var info Info
	err := ix.withSnapshot(func(tx *bolt.Tx, p *snapshot) error {
		info = Info{Settings: p.state.Settings, Segments: len(p.state.Segments), Bytes: tx.Size()}
		for _, s := range p.state.Segments {
			info.Docs += s.Live
			info.Tokens += s.Count
		}
		return nil
	})
	return info, err
}

func (ix *Index) lastSettings() *Settings {
	ix.cache.Lock()
	defer ix.cache.Unlock()
	return ix.settings
}

// withSnapshot calls use with what the file holds, which stays as it is meanwhile.
func (ix *Index) withSnapshot(use func(*bolt.Tx, *snapshot) error) (err error) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	switch {
	case ix.closed:
		return fmt.Errorf("%s: %w", ix.path, storage.ErrClosed)
	case ix.file == nil:
		return fmt.Errorf("%s: %w", ix.path, ErrNotSynced)
	}
	err = damagedError(ix.file.View(func(tx *bolt.Tx) error {
		p, err := ix.snapshotAt(tx)
		if err != nil {
			return err
		}
		if p == nil || ix.options.Settings != nil && !ix.options.Settings.equalTo(p.state.Settings) {
			return ErrNotSynced
		}
		return use(tx, p)
	}))
	if errors.Is(err, ErrDamaged) {
		ix.cache.Lock()
		ix.damaged = true
		ix.cache.Unlock()
		err = ErrDamaged
	}
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotSynced) {
		return fmt.Errorf("%s: %w", ix.path, err)
	}
	return err
}
