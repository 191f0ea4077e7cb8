package command

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/storage"
)

// The lines of the table add up: those of the tokens to theirs, the others to the file.
func TestSizesAddUp(t *testing.T) {
	var b bytes.Buffer
	sizesText(&b, &index.Info{
		Tokens: 1,
		Pages:  storage.Pages{Size: 1 << 20, Page: 4096, Free: 3},
		Sizes: storage.Sizes{
			Codec: 1, Codes: 2, Residuals: 4, Factors: 8, Docs: 16, IDs: 32, Postings: 64, Tombstones: 128, Payload: 256, Fields: 512,
		},
	})
	sum, sums := int64(0), map[string]int64{}
	for line := range strings.Lines(b.String()) {
		cells := strings.Fields(line)
		n, err := strconv.ParseInt(strings.ReplaceAll(cells[len(cells)-2], ",", ""), 10, 64)
		if err != nil {
			continue // the head
		}
		switch name := strings.Join(cells[:len(cells)-2], " "); name {
		case "tokens, all in", "file":
			sums[name] = n
			require.Equal(t, sum, n, "%s\n%s", name, &b)
		default:
			sum += n
		}
	}
	require.Len(t, sums, 2)
}
