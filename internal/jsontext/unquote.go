package jsontext

import (
	"encoding/json"
	"strings"
)

// Unquote is the text of a valid JSON string, which is read in steps of about so many
// bytes. After each it asks whether to go on; after a no what it returns means nothing.
func Unquote(raw []byte, step int, goOn func(bytes int) bool) string {
	var all strings.Builder
	for from := 1; from < len(raw)-1; {
		end := pieceEnd(raw, from, step)
		piece := raw
		if end-from < len(raw)-2 {
			piece = append(append([]byte{'"'}, raw[from:end]...), '"')
		}
		var text string
		_ = json.Unmarshal(piece, &text) // it is valid
		if all.WriteString(text); !goOn(end - from) {
			break
		}
		from = end
	}
	return all.String()
}

// pieceEnd is a place in a string after some bytes, between two characters.
func pieceEnd(raw []byte, from, step int) int {
	at, high := from, false // high: half of a character is before
	for ; at < len(raw)-1; at++ {
		if c := raw[at]; at-from >= step && c&0xc0 != 0x80 && !high {
			break
		}
		if high = false; raw[at] == '\\' {
			if at++; raw[at] == 'u' {
				high = raw[at+1]|0x20 == 'd' && raw[at+2] >= '8'
				at += 4
			}
		}
	}
	return at
}
