// Package hub finds models by the names that a model hub gives them, such as
// answerdotai/answerai-colbert-small-v1, in the hub's own cache, and fetches missing files.
//
// The cache is that of the Python package huggingface_hub, with its layout and its locks: each
// program uses the downloads of the other. The same
// environment variables have the same meaning; [FromEnv] reads them.
//
// [Hub.Open] returns a [Snapshot], a model at one commit, and [Snapshot.Get] fetches its files into
// blobs named by their hashes. Blobs are verified, and downloads are resumed after an interruption. A
// file appears in the snapshot when it is complete.
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

// DefaultEndpoint is the address of the hub if HF_ENDPOINT does not name another.
const DefaultEndpoint = "https://huggingface.co"

// The variables of the environment that are read.
const (
	envEndpoint = "HF_ENDPOINT"
	envHome     = "HF_HOME"
	envCache    = "HF_HUB_CACHE"
	envToken    = "HF_TOKEN"
	envOffline  = "HF_HUB_OFFLINE"
)

// Hub is a model hub with the cache of the files that were fetched from it. It is safe for concurrent
// use as long as its fields are not changed.
type Hub struct {
	// Endpoint is the address of the hub, without a slash at the end.
	Endpoint string
	// Cache is the folder that has a folder for each model.
	Cache string
	// Token is sent to the endpoint, and to no other host. It may be "".
	Token string
	// Refresh requests the commit of a branch from the hub even if the cache has one.
	Refresh bool
	// Offline is the variable or option that switched requests off. "" means that requests are
	// allowed.
	Offline string
	// NoLinks makes snapshots of files instead of symbolic links to blobs.
	NoLinks bool
	// AnswerTimeout limits the time until the hub answers, and ReadTimeout the time until it sends
	// more of a file. 0 means ten seconds.
	AnswerTimeout, ReadTimeout time.Duration
	// Attempts is how often a failing request is sent without progress. 0 means five times.
	// Backoff is the first pause between two attempts, which doubles. 0 means a second.
	Attempts int
	Backoff  time.Duration
	// Transport sends the requests. nil means that of package http.
	Transport http.RoundTripper
	// Progress is called with the progress of each [Snapshot.Get], never concurrently. It may be nil.
	Progress func(Progress)
	// Logger logs files that were fetched, and requests that are repeated. nil means silence.
	Logger *slog.Logger
}

// Progress reports how much of the files of a call is fetched.
type Progress struct {
	Model string // the name of the model
	File  string // the file that is being fetched
	Done  int64  // fetched bytes of all files, including those of earlier attempts
	Total int64  // bytes of all files
}

// FromEnv returns the hub that the environment describes, as huggingface_hub reads it: HF_ENDPOINT,
// HF_HOME, HF_HUB_CACHE, XDG_CACHE_HOME, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE and others. An
// empty variable counts as unset.
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
	// The first of the two variables that is set decides, even if it is 0.
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
	if h.Token = cleanToken(cmp.Or(os.Getenv(envToken), os.Getenv("HUGGING_FACE_HUB_TOKEN"))); h.Token == "" {
		b, _ := os.ReadFile(expand(cmp.Or(os.Getenv("HF_TOKEN_PATH"), filepath.Join(home, "token"))))
		h.Token = cleanToken(string(b))
	}
	return h
}

// cleanToken removes line ends and surrounding white space from a token.
func cleanToken(token string) string {
	return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(token))
}

// isTrue reports whether a variable's value means true for huggingface_hub.
func isTrue(s string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(s))
}

// seconds reads a variable in whole seconds. 0 means that it is not set or not a number.
func seconds(name string) time.Duration {
	n, _ := strconv.Atoi(os.Getenv(name))
	return time.Duration(n) * time.Second
}

// variable matches $NAME, ${NAME} and, for Windows, %NAME%.
var variable = regexp.MustCompile(`\$(\w+|\{[^}]*\})|%\w+%`)

// expand replaces ~ at the beginning by the home folder, and variables by their values, as Python
// does. Unknown users and variables stay as they are.
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

// logger returns Logger or, if it is nil, a silent one.
func (h *Hub) logger() *slog.Logger { return cmp.Or(h.Logger, slog.New(slog.DiscardHandler)) }

// WithLogger returns a copy of the hub with another logger and progress function. nil keeps the present
// ones.
func (h *Hub) WithLogger(log *slog.Logger, progress func(Progress)) *Hub {
	other := *h
	other.Logger = cmp.Or(log, h.Logger)
	if progress != nil {
		other.Progress = progress
	}
	return &other
}
