// Package keywords finds documents by the words of their payloads, with BM25.
//
//	[Open] → [Index]     opens the keywords of an index, which may not exist yet
//	[Index.Sync]         updates them to a snapshot of the index
//	[Index.Search]       returns the best documents for a text
//
// Keywords are derived data: a file next to the index, computed from the payloads. The first
// [Index.Sync] creates the file. A later one replaces it if it is damaged or has other settings.
// The file may be deleted at any time. A process that only reads the index leaves the file
// unchanged ([Options.Write]).
//
// The file records the index and the state that it was computed from ([storage.Stamp]). Sync
// compares it with a snapshot of another state document by document, by the checksums of the
// payloads, and reads the documents that differ. Within one process it follows the changes of an
// open index without that comparison. So the file is also right after a backup was restored or an
// index was rebuilt.
//
// Documents are identified by their ordinals, as in searches by vectors.
//
// # Scores
//
// BM25 is that of Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond
// (2009), section 3, in the form of Lucene: a term that occurs tf times in a document of dl tokens
// adds
//
//	weight · ln(1 + (N − df + ½)/(df + ½)) · tf / (tf + k1·(1 − b + b·dl/avgdl))
//
// where weight is how often the term is in the query. N, df and avgdl are counted over the live
// documents that have text, exactly: scores depend on these documents alone, not on how they were
// added.
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

// Errors, in addition to [ErrSyntax], [storage.ErrLocked] and [storage.ErrClosed]; test with
// errors.Is.
var (
	// ErrOption reports an option that is out of range.
	ErrOption = errors.New("bad option of keywords")
	// ErrNotSynced reports a search before the first Sync of a file that is missing or has other
	// settings.
	ErrNotSynced = errors.New("keywords are not made yet: sync them with the index")
	// ErrDamaged reports a damaged file. The next Sync replaces it.
	ErrDamaged = errors.New("keywords are damaged: sync them with the index again")
)

// Tokenizers, and languages of stemmers and stop words.
const (
	// Unicode61 finds words: runs of letters and digits, ignoring case and accents. The name is
	// that of SQLite's tokenizer that does the same.
	Unicode61 = "unicode61"
	// Trigram finds parts of words: each three consecutive characters. It is for languages without
	// blanks, and for code. Its files are several times larger.
	Trigram = "trigram"
	// English selects Porter's second stemmer, or the stop words of Lucene.
	English = "english"
)

// Settings select how text becomes terms. A file keeps the settings that it was created with.
type Settings struct {
	Tokenizer string `json:"tokenizer"`            // Unicode61 ("") or Trigram
	Stemmer   string `json:"stemmer,omitempty"`    // "" means none; or English
	StopWords string `json:"stop_words,omitempty"` // "" means none; or English
	// Fields are the fields of JSON objects that are searched, named as in conditions
	// ("author.name"; the quotes of "publication date" may be omitted). No fields means all values.
	Fields []string `json:"fields,omitempty"`
	// IDs makes the ids of documents searchable, too, whatever Fields are.
	IDs bool `json:"ids,omitempty"`
}

// Check returns the settings with defaults and normalized fields, or an [ErrOption].
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
		if err != nil { // a key that needs quotes in a condition
			f = condition.MakeField(name)
		}
		s.Fields[i] = strings.Join(f.Keys(), ".")
	}
	return s, nil
}

func (s Settings) equalTo(o Settings) bool {
	return s.Tokenizer == o.Tokenizer && s.Stemmer == o.Stemmer && s.StopWords == o.StopWords &&
		s.IDs == o.IDs && slices.Equal(s.Fields, o.Fields)
}

// defaultMemory is the memory of a Sync for documents that are not written yet.
const defaultMemory = 64 << 20

// Options for Open. nil means the zero value.
type Options struct {
	// Settings of the file. nil means the file's own, or [Unicode61] over all values for a new
	// file. Sync replaces a file that has other settings.
	Settings *Settings
	// Write locks the file so that Sync can write it: for the program that owns the index. Without
	// it nothing is written next to the index, and any number of processes may read the file. If it
	// is missing, or has another state of the index, Sync writes a temporary file ([os.TempDir]),
	// which Close removes.
	Write bool
	// LockTimeout is how long to wait for another process. 0 means not at all.
	LockTimeout time.Duration
	// Memory is how many bytes of documents Sync collects before it writes them. 0 means
	// [defaultMemory].
	Memory int64
	// Logger receives a warning when a damaged file is replaced. nil means no log.
	Logger *slog.Logger
	// Progress, where set, is called with the number of documents that Sync has read, and has to read.
	Progress func(done, total int64)
}

// Path returns the path of the keywords of an index.
func Path(index string) string { return index + ".keywords" }

// Index is an open file of keywords. It is safe for concurrent use: searches continue while Sync
// works, and use its result once it has returned.
type Index struct {
	path    string
	options Options
	log     *slog.Logger

	syncing chan struct{} // has an element while Sync or Close works

	mu        sync.RWMutex         // read-locked to use the file, locked to replace it
	file      *storage.DerivedFile // nil means that no usable file exists
	temporary string               // name of file if it is a temporary one
	closed    bool

	cache        sync.Mutex // guards lastSnapshot, damaged and settings
	lastSnapshot *snapshot
	damaged      bool      // a search found the file damaged
	settings     *Settings // settings of the file when they were last read. nil means never

	lastSync syncPoint // the state that the last Sync reached
}

// Open opens the file at path, which need not exist: see [Path]. With Write, the next Sync replaces
// a file that is damaged or has other settings than requested.
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

// Path returns the path of the file.
func (ix *Index) Path() string { return ix.path }

// Close waits for searches and closes the file. It may be called more than once.
func (ix *Index) Close() error {
	ix.syncing <- struct{}{}
	defer func() { <-ix.syncing }()
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.closed = true
	return ix.closeFile()
}

// ReleaseFile closes the file next to the index until the next Sync, so that other processes can
// write it. It leaves a temporary file open.
func (ix *Index) ReleaseFile() error {
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
// did not match the last snapshot and must not be written.
func (ix *Index) Temporary() bool {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	return ix.temporary != ""
}

// Info describes the file.
type Info struct {
	Settings Settings `json:"settings"`   // how text becomes words
	Docs     int      `json:"docs"`       // documents and passages that have text
	Tokens   uint64   `json:"tokens"`     // of these documents
	Segments int      `json:"segments"`   // number of segments
	Bytes    int64    `json:"file_bytes"` // of the file
}

// Info describes the result of the last Sync.
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

// lastSettings returns the settings that were read last. nil means that none were read.
func (ix *Index) lastSettings() *Settings {
	ix.cache.Lock()
	defer ix.cache.Unlock()
	return ix.settings
}

// withSnapshot calls read with a read transaction and the snapshot of the file in it. It returns
// ErrNotSynced without a usable file.
func (ix *Index) withSnapshot(read func(*bolt.Tx, *snapshot) error) (err error) {
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
		return read(tx, p)
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
