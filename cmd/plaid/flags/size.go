package flags

import (
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/out"
	"github.com/plaid-ir/plaid/internal/size"
)

type sizeValue struct{ p *int64 }

// Size is a number of bytes.
func Size(p *int64, def int64) pflag.Value {
	*p = def
	return &sizeValue{p}
}

func (v *sizeValue) Set(s string) error {
	n, err := size.Parse(s)
	if err != nil {
		return err
	}
	*v.p = n
	return nil
}
func (v *sizeValue) String() string { return out.Bytes(*v.p) }
func (v *sizeValue) Type() string   { return "SIZE" }
