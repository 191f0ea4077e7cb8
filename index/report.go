package index

import (
	"cmp"
	"fmt"
	"strings"
)

// The String methods of reports give one line, for logs and for people. Fields that are 0 are
// omitted.

// reportLine collects the phrases of a report, which it joins with commas.
type reportLine struct{ phrases []string }

func (l *reportLine) add(n int64, noun string) {
	if n != 0 {
		l.phrases = append(l.phrases, fmt.Sprintf("%d %s", n, noun))
	}
}

// addDocuments adds the number of documents, and of the passages in which some of them are stored.
func (l *reportLine) addDocuments(docs, passages int) {
	if l.add(int64(docs), "documents"); passages > 0 && docs > 0 {
		l.phrases[len(l.phrases)-1] += fmt.Sprintf(" in %d passages", passages)
	}
}

func (l *reportLine) appendf(format string, args ...any) {
	l.phrases = append(l.phrases, fmt.Sprintf(format, args...))
}

func (l *reportLine) String() string { return cmp.Or(strings.Join(l.phrases, ", "), "nothing") }

// String returns a line such as: 46 documents, 7010 tokens, RMSE 0.0712, 0.4 s.
func (r *BuildReport) String() string {
	l := &reportLine{}
	l.addDocuments(r.Docs, r.Passages)
	l.add(int64(r.Empty), "of them empty")
	l.add(int64(r.Resumed), "of them by an earlier build")
	l.add(r.Tokens, "tokens")
	l.add(r.Zero, "zero vectors")
	l.appendf("RMSE %.4f", r.RMSE)
	l.appendf("%.1f s", r.Seconds.Sample+r.Seconds.Train+r.Seconds.Encode)
	return l.String()
}

// String returns a line such as: 3 documents, 1 replaced, 512 tokens, RMSE 0.0712.
func (r *AddReport) String() string {
	l := &reportLine{}
	l.addDocuments(r.Docs, r.Passages)
	l.add(int64(r.Empty), "of them empty")
	l.add(int64(r.Replaced), "replaced")
	l.add(int64(r.Deleted), "deleted")
	l.add(r.Tokens, "tokens")
	l.appendf("RMSE %.4f", r.RMSE)
	return l.String()
}

// String returns a line such as: 2 documents in 7 passages; or 1 document; or 3 passages.
func (a Affected) String() string {
	plural := func(n int, noun string) string {
		if n == 1 {
			return "1 " + noun
		}
		return fmt.Sprintf("%d %ss", n, noun)
	}
	switch {
	case a.Passages == 0:
		return plural(a.Documents, "document")
	case a.Documents == 0:
		return plural(a.Passages, "passage")
	}
	return plural(a.Documents, "document") + " in " + plural(a.Passages, "passage")
}

// String returns a line such as: 46 documents, 7010 tokens.
func (r *CopyReport) String() string { return documentsAndTokens(r.Docs, r.Passages, int64(r.Tokens)) }

// String returns a line such as: 46 documents, 7010 tokens.
func (r *ExportReport) String() string { return documentsAndTokens(r.Docs, r.Passages, r.Tokens) }

func documentsAndTokens(docs, passages int, tokens int64) string {
	l := &reportLine{}
	l.addDocuments(docs, passages)
	l.add(tokens, "tokens")
	return l.String()
}

// String returns a line such as: 46 documents, 7010 tokens, 1048576 bytes written, incremental.
func (r *BackupReport) String() string {
	l := &reportLine{}
	l.addDocuments(r.Docs, r.Passages)
	l.add(int64(r.Tokens), "tokens")
	l.appendf("%d bytes written", r.Written)
	if r.Incremental {
		l.appendf("incremental")
	}
	return l.String()
}

// String returns a line such as: 46 documents, 7010 tokens, 128 → 256 centroids.
func (r *RetrainReport) String() string {
	l := &reportLine{}
	l.addDocuments(r.Docs, r.Passages)
	l.add(r.Tokens, "tokens")
	l.appendf("%d → %d centroids, %d → %d bits", r.Before.Centroids, r.After.Centroids, r.Before.Nbits, r.After.Nbits)
	return l.String()
}

// String returns a line such as: 46 documents of colbert, 7010 tokens, 128 centroids, 2 bits.
func (r *ImportReport) String() string {
	l := &reportLine{}
	l.appendf("%s of %s", Affected{Documents: r.Docs, Passages: r.Passages}, r.Engine)
	l.appendf("%d tokens, %d centroids, %d bits", r.Tokens, r.K, r.Nbits)
	return l.String()
}

// String returns a line such as: 45 documents, 6900 tokens, 1 lost.
func (r *SalvageReport) String() string {
	l := &reportLine{}
	l.addDocuments(r.Docs, r.Passages)
	l.add(int64(r.Tokens), "tokens")
	l.add(r.LostDocs, "lost")
	l.add(int64(len(r.LostPayloads)), "without their metadata")
	l.add(int64(len(r.UncertainPayloads)), "perhaps without their metadata")
	l.add(int64(len(r.Uncertain)), "perhaps deleted before")
	return l.String()
}
