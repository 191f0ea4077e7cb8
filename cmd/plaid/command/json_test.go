package command

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// documented are the sections of docs/formats.md, by type.
func documented(t *testing.T) map[string]string {
	text, err := os.ReadFile("../../../docs/formats.md")
	require.NoError(t, err)
	sections := map[string]string{}
	for part := range strings.SplitSeq(string(text), "\n### `") {
		if kind, rest, ok := strings.Cut(part, "`\n"); ok && !strings.Contains(kind, "\n") {
			sections[kind] = rest
		}
	}
	return sections
}

// Every line of JSON has a type, and every field of it is documented.
func TestJSONIsDocumented(t *testing.T) {
	if !effort.Long() {
		t.Skip("runs most commands")
	}
	dir := t.TempDir()
	sample := "../../../docs/examples/quickstart/scifact-sample"
	replace := strings.NewReplacer("NANO", nano, "SAMPLE", sample, "DIR", dir,
		"DOCS", "--vectors SAMPLE/vectors/docs.npy --lengths SAMPLE/vectors/doclens.npy --ids SAMPLE/vectors/doc_ids.txt",
		"QUERIES", "--queries SAMPLE/vectors/queries.npy --query-ids SAMPLE/vectors/query_ids.txt")
	sections := documented(t)
	seen := map[string]bool{}
	check := func(line string) {
		var object map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &object), line)
		kind, _ := object["type"].(string)
		seen[kind] = true
		require.Contains(t, sections, kind, line)
		for name := range object {
			if name != "type" {
				require.Contains(t, sections[kind], "`"+name+"`", "%s: %s", kind, name)
			}
		}
	}
	for _, c := range []string{
		"index DIR/a DOCS --metadata SAMPLE/corpus.jsonl --scales none --centroids 32",
		"index DIR/t --text SAMPLE/corpus.jsonl --model NANO --centroids 64",
		"add DIR/a --replace DOCS",
		"export DIR/a DIR/e --format fast-plaid",
		"import DIR/e DIR/b",
		"encode SAMPLE/queries.jsonl --queries --model NANO -o DIR/v",
		"model NANO",
		"search DIR/a QUERIES -k 1 --stats=json",
		"search DIR/t nutrients -k 1 --show-metadata",
		"explain DIR/t 970012 nutrients",
		"get DIR/a 970012",
		"get DIR/a --facet title",
		"score --vectors SAMPLE/vectors/docs.npy --lengths SAMPLE/vectors/doclens.npy QUERIES -k 1",
		"eval --qrels SAMPLE DIR/run DIR/run --per-query",
		"beir SAMPLE --vectors SAMPLE/vectors --index DIR/a",
		"bench DIR/a QUERIES -k 3 --probes 1 --exact 3 --qrels SAMPLE --per-query DOCS",
		"tune DIR/a QUERIES -k 3 --force",
		"info DIR/a", "info DIR/t", "info --cpu", "info --devices",
		"verify DIR/a", "backup DIR/a DIR/c", "index DIR/k DOCS --centroids 32 --codec-only",
		"reshard DIR/parts DIR/a --shards 2", "reshard DIR/m DIR/parts", "search DIR/parts QUERIES -k 1 --stats=json", "info DIR/parts", "verify DIR/parts",
		"delete DIR/a 970012", "update DIR/a --where 1=1 --set x=1", "compact DIR/a", "compact DIR/a --salvage DIR/s", "retrain DIR/b --centroids 32",
		"keywords DIR/t", "tune DIR/a --reset", "version", "info DIR/nosuch",
	} {
		args := append(strings.Fields(replace.Replace(replace.Replace(c))), "--json", "-q")
		if args[0] == "eval" {
			code, run, stderr := try(t, "search", filepath.Join(dir, "a"), "--queries", sample+"/vectors/queries.npy", "--query-ids", sample+"/vectors/query_ids.txt", "--format", "trec")
			require.Equal(t, exitOK, code, stderr)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "run"), []byte(run), 0o644))
		}
		code, stdout, stderr := try(t, args...)
		if !slices.Contains(args, filepath.Join(dir, "nosuch")) {
			require.Equal(t, exitOK, code, "%s: %s", c, stderr)
			require.NotEmpty(t, stdout, c)
		}
		for lines := bufio.NewScanner(strings.NewReader(stdout + stderr)); lines.Scan(); {
			check(lines.Text())
		}
	}
	for kind := range sections {
		require.True(t, seen[kind], "docs/formats.md has %s, which no command printed", kind)
	}
	for _, e := range exitTable[1:] {
		require.Contains(t, sections["error"], "`"+e.word+"`")
	}
}
