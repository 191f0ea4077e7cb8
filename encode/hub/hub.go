// Package hub finds models by the names that a model hub gives them, such as
// answerdotai/answerai-colbert-small-v1, in the hub's own cache, and fetches missing files.
//
// The cache is the one of the Python package huggingface_hub, in its layout and under its locks:
// its downloads are used without network, and the other way round. The same
// variables of the environment have the same meaning; [FromEnv] reads them.
//
// [Hub.Open] gives a [Snapshot], a model at one commit, and [Snapshot.Get] fetches files of it: into
// blobs named by their hashes, which are checked, and resumed after an interruption. A file
// appears in the snapshot when it is complete.
package hub

import (
	"cmp"
	"log/slog"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultEndpoint is the address of the hub where HF_ENDPOINT names no other.
const DefaultEndpoint = "https://huggingface.co"

// The variables of the environment that are read.
const (
	envEndpoint = "HF_ENDPOINT"
	envHome     = "HF_HOME"
	envCache    = "HF_HUB_CACHE"
	envToken    = "HF_TOKEN"
	envOffline  = "HF_HUB_OFFLINE"
)

// Hub is a model hub, and the cache of the files that were fetched from it. The fields must not be changed
// while it is used; it is safe for concurrent use.
type Hub struct {
	// Endpoint is its address, without a slash at the end.
	Endpoint string
	// Cache is the folder with a folder for each model.
	Cache string
	// Token is sent to the endpoint, and to no other host. It may be "".
	Token string
	// Refresh says that the commit of a branch is asked for also where the cache knows one.
	Refresh bool
	// Offline is the variable or option that decided that nothing is fetched; "" means that there
	// is network.
	Offline string
	// NoLinks says that snapshots have files in the place of symbolic links into blobs.
	NoLinks bool
	// AnswerTimeout is how long the hub may take to answer, ReadTimeout how long it may take to
	// send more of a file; 0 means ten seconds.
	AnswerTimeout, ReadTimeout time.Duration
	// Attempts is how often a request that fails is made without progress; 0 means five times.
	// Backoff is the first pause between two, which doubles; 0 means a second.
	Attempts int
	Backoff  time.Duration
	// Transport makes the requests; nil means that of package http.
	Transport http.RoundTripper
	// Progress, where set, is told how much of the files of one [Snapshot.Get] is there. Calls come
	// one after the other.
	Progress func(Progress)
	// Logger hears of files that were fetched, and of requests that are made again; nil means silence.
	Logger *slog.Logger
}

// Progress is how much is there of files that are being fetched.
type Progress struct {
	Model string // its name
	File  string // the one that is being fetched
	Done  int64  // bytes of all files of the call, with those of earlier attempts
	Total int64  // bytes of all files of the call
}

// FromEnv is the hub that the environment describes, as huggingface_hub reads it: HF_ENDPOINT,
// HF_HOME, HF_HUB_CACHE, XDG_CACHE_HOME, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE and others. A
// variable that is empty counts as one that is not set.
func FromEnv() *Hub {
	home := expand(cmp.Or(os.Getenv(envHome),
		filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join("~", ".cache")), "huggingface")))
	h := &Hub{
		Endpoint: strings.TrimRight(cmp.Or(os.Getenv(envEndpoint), DefaultEndpoint), "/"),
		Cache:    expand(cmp.Or(os.Getenv(envCache), os.Getenv("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub"))),
		NoLinks:  isTrue(os.Getenv("HF_HUB_DISABLE_SYMLINKS")),

		AnswerTimeout: seconds("HF_HUB_ETAG_TIMEOUT"),
		ReadTimeout:   seconds("HF_HUB_DOWNLOAD_TIMEOUT"),
	}
	// Offline is decided by the first of the two that is set, even to 0.
	for _, name := range []string{envOffline, "TRANSFORMERS_OFFLINE"} {
		if s := os.Getenv(name); s != "" {
			if isTrue(s) {
				h.Offline = name + "=" + s
			}
			break
		}
	}
	if isTrue(os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		return h
	}
	if h.Token = clean(cmp.Or(os.Getenv(envToken), os.Getenv("HUGGING_FACE_HUB_TOKEN"))); h.Token == "" {
		b, _ := os.ReadFile(expand(cmp.Or(os.Getenv("HF_TOKEN_PATH"), filepath.Join(home, "token"))))
		h.Token = clean(string(b))
	}
	return h
}

// clean removes white space and quotation marks that surround a token.
func clean(token string) string {
	return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(token))
}

func isTrue(s string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(s))
}

func seconds(name string) time.Duration {
	n, _ := strconv.Atoi(os.Getenv(name))
	return time.Duration(n) * time.Second
}

// variable is $NAME or ${NAME}; on Windows also %NAME%.
var variable = regexp.MustCompile(`\$(\w+|\{[^}]*\})|%\w+%`)

// expand puts the home folder in the place of ~ at the beginning, and the values of variables in
// that of their names, as Python does. What is not known stays.
func expand(path string) string {
	if tail, ok := strings.CutPrefix(path, "~"); ok {
		name, _, _ := strings.Cut(filepath.ToSlash(tail), "/")
		home := ""
		if name == "" {
			if home, _ = os.UserHomeDir(); home == "" {
				if u, err := user.Current(); err == nil {
					home = u.HomeDir
				}
			}
		} else if u, err := user.Lookup(name); err == nil {
			home = u.HomeDir
		}
		if home != "" {
			path = home + tail[len(name):]
		}
	}
	return variable.ReplaceAllStringFunc(path, func(v string) string {
		if v[0] == '%' && runtime.GOOS != "windows" {
			return v
		}
		if value, ok := os.LookupEnv(strings.Trim(v, "${}%")); ok {
			return value
		}
		return v
	})
}

func (h *Hub) log() *slog.Logger { return cmp.Or(h.Logger, slog.New(slog.DiscardHandler)) }

// With is the hub with another logger and listener, which may be nil: those that it has stay then.
func (h *Hub) With(log *slog.Logger, progress func(Progress)) *Hub {
	other := *h
	other.Logger = cmp.Or(log, h.Logger)
	if progress != nil {
		other.Progress = progress
	}
	return &other
}
