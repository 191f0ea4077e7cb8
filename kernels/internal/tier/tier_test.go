package tier

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTablesAreFull: every tier has every loop, but for those that it may lack,
// and says where each stage's come from.
func TestTablesAreFull(t *testing.T) {
	optional := map[string]bool{"Tiles": true, "MaxLevels": true, "WidenBF16": true, "WidenF16": true, "Filter": true, "Rounded": true, "FineTiles": true, "Screen": true}
	require.Equal(t, "generic", All[0].Name)
	var names []string
	for _, tier := range All {
		require.NotContains(t, names, tier.Name)
		names = append(names, tier.Name)
		requireLoops(t, tier.Name, tier.Tokens, optional)
		if tier.Tokens.Filter != nil {
			requireLoops(t, tier.Name, *tier.Tokens.Filter, nil)
		}
		for i, uses := range tier.Tokens.Uses {
			of, _, _ := strings.Cut(uses, " ")
			require.Contains(t, names, of, "%s, %s: of no tier up to this one", tier.Name, StageNames[i])
		}
	}
}

func requireLoops(t *testing.T, tier string, table any, optional map[string]bool) {
	v := reflect.ValueOf(table)
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Func && !optional[v.Type().Field(i).Name] {
			require.False(t, f.IsNil(), "%s has no %s", tier, v.Type().Field(i).Name)
		}
	}
}
