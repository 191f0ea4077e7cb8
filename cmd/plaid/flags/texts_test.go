package flags

import (
	"testing"

	"github.com/plaid-ir/plaid/encode"
	"github.com/plaid-ir/plaid/vectors"
	"github.com/stretchr/testify/require"
)

// A file whose text is in another field than text has no second text, which would show with the document.
func TestPayloadHasOneText(t *testing.T) {
	got, err := withPayload(encode.Text{Title: "T", Text: "x", Payload: []byte(`{"n":1}`)})
	require.NoError(t, err)
	require.JSONEq(t, `{"title":"T","text":"x","n":1}`, string(got.Payload))
	got, err = withPayload(encode.Text{Text: "x"})
	require.NoError(t, err)
	require.JSONEq(t, `{"text":"x"}`, string(got.Payload))
	for _, field := range []string{"title", "text"} {
		_, err := withPayload(encode.Text{Text: "x", Payload: []byte(`{"n":1,"` + field + `":"of the file"}`)})
		require.ErrorIs(t, err, vectors.ErrPayload)
		require.ErrorContains(t, err, "it has a field "+field+", and what is read as the "+field+" is stored by that name")
		require.ErrorContains(t, err, "--drop-text")
	}
}
