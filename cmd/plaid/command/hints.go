package command

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/internal/human"
)

// commandsElsewhere maps commands of other tools to the commands here that do the same.
var commandsElsewhere = map[string]string{
	"build": "index", "create": "index", "make": "index", "init": "index", "new": "index",
	"insert": "add", "append": "add", "upsert": "add", "put": "add", "sync": "watch",
	"load": "import", "convert": "import", "dump": "export", "embed": "encode",
	"query": "search", "find": "search", "ask": "search", "grep": "search", "rerank": "score",
	"list": "info", "ls": "info", "status": "info", "stats": "info", "show": "info", "describe": "info",
	"count": "info", "cat": "get", "rm": "delete", "remove": "delete", "del": "delete", "edit": "update",
	"set":   "update",
	"check": "verify", "fsck": "verify", "optimize": "compact", "vacuum": "compact", "train": "retrain",
	"snapshot": "backup", "copy": "backup", "split": "reshard", "merge": "reshard", "shard": "reshard",
	"recall": "bench", "benchmark": "bench", "compare": "eval", "evaluate": "eval",
	"ui": "serve", "open": "serve", "server": "serve", "start": "serve", "web": "serve", "run": "serve",
}

// remarksElsewhere has remarks on commands of other tools that have no equivalent command here.
var remarksElsewhere = map[string]string{
	"download": "to fetch a model from the Hugging Face hub, use plaid model ORG/NAME --fetch",
}

// flagsElsewhere maps flags of other tools to flags here that do the same. The first one that the
// command has is suggested.
var flagsElsewhere = map[string][]string{
	"top-k": {"k"}, "topk": {"k"}, "top_k": {"k"}, "top": {"k"}, "limit": {"k"}, "size": {"k"}, "count": {"k"},
	"num-results": {"k"}, "n": {"k"},
	"query": {"questions", "queries"}, "question": {"questions", "queries"}, "questions": {"queries"},
	"queries-text": {"questions"}, "text": {"questions"},
	"text-query": {"keywords"}, "text-queries": {"keywords"}, "words": {"keywords"}, "bm25": {"keywords"},
	"filter": {"where"}, "filters": {"where"}, "condition": {"where"}, "payload": {"metadata"},
	"payloads": {"metadata"},
	"file":     {"text", "questions"}, "input": {"text", "questions"}, "i": {"text", "questions"},
	"corpus": {"text"}, "documents": {"text"}, "docs": {"text"}, "embeddings": {"vectors", "queries"},
	"out": {"output"}, "output-dir": {"output"}, "overwrite": {"force", "replace"}, "f": {"force", "replace"},
	"bits": {"nbits"}, "gpu": {"device"}, "cuda": {"device"},
	"workers": {"threads"}, "jobs": {"threads"}, "j": {"threads"}, "num-threads": {"threads"},
	"host": {"listen"}, "port": {"listen"}, "p": {"listen"}, "addr": {"listen"}, "bind": {"listen"},
	"chunk-size": {"window"}, "max-length": {"document-length", "query-length"},
}

// countsElsewhere says, by command, how to set the number of results where that is not -k.
var countsElsewhere = map[string]string{
	"mcp":   "the agent says how many: k is an argument of its tools",
	"serve": "each search says how many: params.top_k",
	"eval":  "a measure says how many: --measures nDCG@10,R@100",
	"get":   "all documents that meet --where are shown; plaid search -k N shows the best",
}

// suggestionFor returns a suggestion for an unknown flag or command, which msg reports, or "" if
// nothing is similar.
func suggestionFor(cmd *cobra.Command, msg string) string {
	if typed, ok := strings.CutPrefix(msg, "unknown command "); ok {
		parent := cmd
		for !parent.HasSubCommands() && parent.HasParent() {
			parent = parent.Parent()
		}
		return commandHint(parent, typed)
	}
	if typed, ok := strings.CutPrefix(msg, "unknown flag: --"); ok {
		return flagHint(cmd, typed)
	}
	if typed, ok := strings.CutPrefix(msg, "unknown shorthand flag: '"); ok && len(typed) > 0 {
		return flagHint(cmd, typed[:1])
	}
	return ""
}

// flagHint returns a suggestion for an unknown flag.
func flagHint(cmd *cobra.Command, typed string) string {
	names := flagNames(cmd)
	elsewhere := flagsElsewhere[strings.ToLower(typed)]
	if slices.Equal(elsewhere, []string{"k"}) || typed == "k" {
		if countHint := countsElsewhere[cmd.Name()]; countHint != "" {
			return countHint
		}
	}
	for _, name := range elsewhere {
		switch {
		case !slices.Contains(names, name):
		case name == "k":
			return "-k says how many"
		case name == "listen":
			return "--listen takes HOST:PORT"
		default:
			return "did you mean --" + name + "?"
		}
	}
	nearest := ""
	for _, name := range names { // the shortest name that begins with typed
		if len(typed) > 2 && strings.HasPrefix(name, typed) && (nearest == "" || len(name) < len(nearest)) {
			nearest = name
		}
	}
	if nearest == "" && len(typed) > 1 {
		nearest = human.Nearest(typed, names)
	}
	if nearest == "" {
		return ""
	}
	return "did you mean --" + nearest + "?"
}

// flagNames returns the flags that the help of a command lists.
func flagNames(cmd *cobra.Command) (names []string) {
	for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.InheritedFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
	}
	return names
}

// commandHint returns a suggestion for an unknown command. rest begins with its name in quotes.
func commandHint(root *cobra.Command, rest string) string {
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return ""
	}
	typed, _ := strconv.Unquote(quoted)
	if remark := remarksElsewhere[typed]; remark != "" {
		return remark
	}
	best, bestDistance := "", 3 // names that differ by three edits are not similar
	for _, c := range root.Commands() {
		d := human.Distance(typed, c.Name())
		if len(typed) > 2 && strings.HasPrefix(c.Name(), typed) {
			d = 1
		}
		if c.Name() == commandsElsewhere[typed] {
			d = 0
		}
		if d < bestDistance {
			best, bestDistance = c.CommandPath(), d
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean '" + best + "'?"
}

// capitalized begins a sentence with an upper-case letter.
func capitalized(sentence string) string { return strings.ToUpper(sentence[:1]) + sentence[1:] }

// inputHint suggests the flag that an unexpected argument may have been meant for, if it is a file
// and the command takes documents.
func inputHint(cmd *cobra.Command, arg string) string {
	flag := "text"
	switch filepath.Ext(arg) {
	case ".npy", ".npz", ".safetensors":
		flag = "vectors"
	}
	if _, err := os.Stat(arg); cmd == nil || cmd.Flags().Lookup(flag) == nil || err != nil && arg != "-" {
		return ""
	}
	return ": did you mean --" + flag + " " + arg + "?"
}

// indexHint says that INDEX comes first, if a later argument is an existing file.
func indexHint(cmd *cobra.Command) string {
	args := cmd.Flags().Args()
	for _, arg := range args[min(1, len(args)):] {
		if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() {
			return "INDEX comes first: " + cmd.CommandPath() + " " + arg + " …"
		}
	}
	return ""
}
