package out

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// countable is a type of counts.
type countable interface {
	~int | ~int64 | ~uint32 | ~uint64
}

// Count formats a count, with its digits in groups: 1,234,567.
func Count[T countable](n T) string {
	s := strconv.FormatUint(uint64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural formats a count with its noun. Without a plural, the plural is the singular with an s.
func Plural[T countable](n T, singular string, plural ...string) string {
	switch {
	case n == 1:
		return "1 " + singular
	case len(plural) > 0:
		return Count(n) + " " + plural[0]
	}
	return Count(n) + " " + singular + "s"
}

// Documents formats a count of documents, and of the passages that some of them are stored as.
func Documents[T countable](docs, passages T) string {
	switch {
	case passages == 0:
		return Plural(docs, "document")
	case docs == 0: // only some passages of documents are counted
		return Plural(passages, "passage")
	}
	return Plural(docs, "document") + " in " + Plural(passages, "passage")
}

// Ordinals formats a count of ordinals: documents, or, in an index with passages, documents or
// passages.
func Ordinals[T countable](n T, passages bool) string {
	if passages {
		return Plural(n, "document or passage", "documents or passages")
	}
	return Plural(n, "document")
}

// Queries formats a count of queries.
func Queries(n int) string { return Plural(n, "query", "queries") }

// Float formats a number with the fewest digits that give back the float64.
func Float(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// FourDecimals formats a number with four decimals, as tables show it.
func FourDecimals(x float64) string { return fmt.Sprintf("%.4f", x) }

// Bytes formats a size with a binary unit.
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	x, unit := float64(n), 0
	for x >= 1024 && unit < 4 {
		x /= 1024
		unit++
	}
	s := strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
	return s + " " + []string{"", "KiB", "MiB", "GiB", "TiB"}[unit]
}

// Rate shortens a number: 950, 12.3k, 4.5M.
func Rate(x float64) string {
	unit := ""
	for _, u := range []string{"k", "M", "G"} {
		if x < 1000 {
			break
		}
		x /= 1000
		unit = u
	}
	if unit == "" {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'f', 1, 64) + unit
}

// Seconds formats a time, rounded to the digits that a reader wants to know.
func Seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(100 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	default:
		d = d.Round(time.Microsecond)
	}
	return d.String()
}

// Milliseconds returns a time in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
