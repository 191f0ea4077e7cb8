package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// encodeJSON is v as one line of JSON.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// payloadJSON is a payload as JSON has it: itself if it is JSON, else a string;
// nil if there is none.
func payloadJSON(p []byte) any {
	switch {
	case p == nil:
		return nil
	case json.Valid(p):
		return json.RawMessage(p)
	}
	return string(p)
}

// snippet is what a table shows of a payload: title and text of a JSON object
// that has them, else the payload itself.
func snippet(p []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(p, &fields) == nil {
		var parts []string
		for _, name := range []string{"title", "text"} {
			var s string
			if json.Unmarshal(fields[name], &s) == nil && s != "" {
				parts = append(parts, s)
			}
		}
		if len(parts) > 0 {
			return strings.Join(parts, ": ")
		}
	}
	return string(p)
}

// printable makes text safe for a terminal: no control characters, no runs of
// white space, at most limit characters.
func printable(s string, limit int) string {
	s = strings.Join(strings.Fields(s), " ")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:max(limit-1, 0)]) + "…"
}

// formatCount groups digits: 1,234,567.
func formatCount[T ~int | ~int64 | ~uint32 | ~uint64](n T) string {
	s := strconv.FormatUint(uint64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural is a count with its noun.
func plural[T ~int | ~int64 | ~uint32 | ~uint64](n T, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return formatCount(n) + " " + noun
}

// formatBytes is a size with a binary unit.
func formatBytes(n int64) string {
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

// formatRate shortens a number: 950, 12.3k, 4.5M.
func formatRate(x float64) string {
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

// formatTime rounds to what a reader wants to know.
func formatTime(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

func formatSeconds(s float64) string { return formatTime(time.Duration(s * float64(time.Second))) }
