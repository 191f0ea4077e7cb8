package command

import (
	"slices"

	"github.com/spf13/pflag"
)

// A command of fewer flags lists them in one piece.
const leastTopicFlags = 12

// topics are what flags are about, in the order in which the help lists them, and the names
// of the flags. Flags of no topic come first.
var topics = []struct {
	title string
	flags []string
}{
	{"Queries", []string{"queries", "query-ids", "query-lengths", "query-mask", "queries-text", "queries-format"}},
	{"Input", []string{
		"text", "text-format", "text-field", "title-field", "id-field", "drop-text", "window", "window-by", "overlap", "spool",
		"vectors", "docs", "ids", "lengths", "mask", "input-format", "no-normalize",
	}},
	{"Model", []string{
		"model", "model-settings", "precision", "encoder", "encoder-option", "encoder-options",
		"document-length", "query-length", "any-model", "vectors-model",
	}},
	{"Codec", []string{"codec", "centroids", "nbits", "iterations", "sample-docs", "scales", "seed", "pool"}},
	{"Which documents", []string{"filter", "where", "param", "allow-missing", "candidates"}},
	{"Documents of passages", []string{"group", "passages"}},
	{"Feedback", []string{"feedback", "like", "unlike"}},
	{"Effort", []string{"mode", "probes", "approx", "exact", "bound"}},
	{"Words", []string{"text-queries", "text-query", "hybrid", "expression", "bm25", "fuse", "fusion", "alpha"}},
	{"Network", []string{
		"listen", "hosts", "base-path", "cors-origins", "tls-cert", "tls-key", "tokens-file", "trusted-proxies",
	}},
	{"Limits", []string{
		"quotas", "rate", "max-body", "max-memory", "work-timeout", "drain-timeout",
	}},
	{"Machine", []string{"threads", "memory", "device", "devices", "device-memory"}},
	{"Output", []string{
		"pack", "format", "json", "json-file", "csv", "svg", "tag", "payload", "highlight", "stats", "output", "float32", "log-format", "log-level",
	}},
}

// byTopic parts the flags of a command by what they are about.
func byTopic(all flagSet) (sets []flagSet) {
	if len(all.flags) < leastTopicFlags {
		return []flagSet{all}
	}
	rest := slices.Clone(all.flags)
	for _, t := range topics {
		s := flagSet{title: t.title}
		for _, name := range t.flags {
			if i := slices.IndexFunc(rest, func(f *pflag.Flag) bool { return f.Name == name }); i >= 0 {
				s.flags, rest = append(s.flags, rest[i]), slices.Delete(rest, i, i+1)
			}
		}
		if len(s.flags) > 0 {
			sets = append(sets, s)
		}
	}
	if len(rest) > 0 {
		sets = slices.Insert(sets, 0, flagSet{title: all.title, flags: rest})
	}
	return sets
}
