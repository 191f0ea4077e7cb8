// Package human parses text that people write: numbers of bytes, misspelt names, and the words of a
// question.
package human

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// ErrSize reports a text that is not a number of bytes.
var ErrSize = errors.New("want a size such as 512MiB, 1GB or 1073741824")

// ParseSize parses 1GiB, 1.5GB, 512M or a plain number of bytes, in any case. As in coreutils, M and MiB
// are 2²⁰ bytes and MB is 10⁶.
func ParseSize(s string) (int64, error) {
	number := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.ToLower(strings.TrimSpace(s[len(number):]))
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(x) || x < 0 {
		return 0, ErrSize
	}
	scale := 1.0
	if unit != "" && unit != "b" {
		power := strings.IndexByte("kmgt", unit[0]) + 1 // 0 for an unknown unit
		switch unit[1:] {
		case "", "ib":
			scale = math.Pow(1024, float64(power))
		case "b":
			scale = math.Pow(1000, float64(power))
		default:
			power = 0
		}
		if power == 0 {
			return 0, ErrSize
		}
	}
	if x *= scale; x >= math.MaxInt64 {
		return 0, ErrSize
	}
	return int64(x), nil
}
