package modeldir_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/encode/modeldir"
	"github.com/plaid-ir/plaid/internal/testing/modeltest"
)

// TestPointers checks that what git leaves in the place of large files without its extension is known as that.
func TestPointers(t *testing.T) {
	for _, name := range []string{"model.safetensors", "1_Dense/model.safetensors", "tokenizer.json"} {
		dir := pylate(t)
		modeltest.WriteFile(t, filepath.Join(dir, filepath.FromSlash(name)),
			[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:"+strings.Repeat("0", 64)+"\nsize 9\n"))
		_, err := modeldir.Read(dir, nil)
		require.ErrorIs(t, err, modeldir.ErrIncomplete)
		require.ErrorContains(t, err, filepath.Join(dir, filepath.FromSlash(name))+": ")
		require.ErrorContains(t, err, "git lfs pull")
	}
}

// TestDeciding: an error of a value that an override decides has its key.
func TestDeciding(t *testing.T) {
	const sentence = "config_sentence_transformers.json"
	for _, f := range []struct {
		file    string
		changes map[string]any
		setting string
	}{
		{sentence, map[string]any{"query_length": 16007}, "query_length"},
		{"artifact.metadata", map[string]any{"doc_maxlen": 31}, "document_length"},
		{"artifact.metadata", map[string]any{"doc_token_id": "[unused1]"}, "document_marker"},
		{"onnx_config.json", map[string]any{"embedding_dim": 41}, ""},
		{"2_Dense/config.json", map[string]any{"in_features": 91}, ""},
	} {
		dir := pylate(t)
		modeltest.JSON(t, filepath.Join(dir, filepath.FromSlash(f.file)), f.changes)
		_, err := modeldir.Read(dir, nil)
		var e *modeldir.ModelError
		require.ErrorAs(t, err, &e, f.file)
		require.Equal(t, f.setting, e.Setting, "%s: %v", f.file, err)
	}
}
