package flags

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/internal/cli/out"
)

type sizeValue struct{ p *int64 }

// Size is a number of bytes.
func Size(p *int64, def int64) pflag.Value {
	*p = def
	return &sizeValue{p}
}

func (v *sizeValue) Set(s string) error {
	n, err := parseSize(s)
	if err != nil {
		return err
	}
	*v.p = n
	return nil
}
func (v *sizeValue) String() string { return out.Bytes(*v.p) }
func (v *sizeValue) Type() string   { return "SIZE" }

var errSize = errors.New("want a size such as 512MiB, 1GB or 1073741824")

// parseSize reads 1GiB, 1.5GB, 512M or a plain number of bytes, in any case.
// As in coreutils, M and MiB are 2²⁰ bytes and MB is 10⁶.
func parseSize(s string) (int64, error) {
	number := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.ToLower(strings.TrimSpace(s[len(number):]))
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(x) || x < 0 {
		return 0, errSize
	}
	scale := 1.0
	if unit != "" && unit != "b" {
		power := strings.IndexByte("kmgt", unit[0]) + 1
		switch unit[1:] {
		case "", "ib":
			scale = math.Pow(1024, float64(power))
		case "b":
			scale = math.Pow(1000, float64(power))
		default:
			power = 0
		}
		if power == 0 {
			return 0, errSize
		}
	}
	if x *= scale; x >= math.MaxInt64 {
		return 0, errSize
	}
	return int64(x), nil
}
