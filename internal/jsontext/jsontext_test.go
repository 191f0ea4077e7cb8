package jsontext_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/internal/jsontext"
	"github.com/plaid-ir/plaid/internal/testing/effort"
)

// What other readers would not take, or would take for something else, is named with its
// place.
func TestCheckNamesThePlace(t *testing.T) {
	deep := strings.Repeat("[", 101) + strings.Repeat("]", 101)
	for text, says := range map[string]string{
		"{\"a\":[{\"b\":\"x\xffy\"}]}":       "a[0].b: a string that is not UTF-8",
		"{\"a\xff\":1}":                      "byte 3: a string that is not UTF-8",
		`{"a":["x","\ud800b"]}`:              `a[1]: \ud800 is half of a character`,
		`{"a":"\udc00"}`:                     `a: \udc00 is half of a character`,
		`{"a":"\ud800\u0041"}`:               `a: \ud800 is half of a character`,
		`{"a":{"b":1e400}}`:                  "a.b: the number 1e400 is too large",
		`[-1e999]`:                           "[0]: the number -1e999 is too large",
		`{"a":` + deep + `}`:                 "more than 100",
		`{"a":1} {}`:                         "byte 8: there is more after the value",
		`{"a":1}x`:                           "there is more",
		`{"a":1`:                             "ends too early",
		`{"a":[1,2,]}`:                       `a[2]: ']' in the place of a value`,
		`{"a":01}`:                           "a: '1' in the place of the end of a number",
		strings.Repeat("9", 400):             "too large",
		"{\"a\":\"\x01\"}":                   "control character",
		`{"a":"\x"}`:                         "escape",
		`{a:1}`:                              "key",
		`{"k":"v" "w"}`:                      "comma",
		`nul`:                                "value",
		``:                                   "early",
		strings.Repeat(`{"abcd":`, 90) + "?": "…",
	} {
		err := jsontext.Check([]byte(text), jsontext.Options{})
		require.ErrorContains(t, err, says, "%.100q", text)
	}
	for _, text := range []string{
		`{"a":"\ud83d\ude00 ü \uFFFD"}`, `[1e308,1e-400,-0.5E+3]`, ` null `, `{}`, `[]`, strings.Repeat("[", 100) + strings.Repeat("]", 100),
		`{"a":{},"b":[[],[1,2]],"":true}`,
	} {
		require.NoError(t, jsontext.Check([]byte(text), jsontext.Options{}), text)
	}
	require.NoError(t, jsontext.Check([]byte("[[1e400]]"), jsontext.Options{Vectors: true}))
}

// Items are charged while they are passed: an error ends the check long before the end.
func TestCheckCharges(t *testing.T) {
	text := []byte(`{"queries":[` + strings.Repeat("{},", 100_000) + `{}]}`)
	var charged int64
	count := func(n int64) error { charged += n; return nil }
	require.NoError(t, jsontext.Check(text, jsontext.Options{Charge: count}))
	require.Greater(t, charged, int64(100_000*512))
	charged = 0
	full := errors.New("full")
	require.ErrorIs(t, jsontext.Check(text, jsontext.Options{Charge: func(n int64) error {
		if charged += n; charged > 1<<20 {
			return full
		}
		return nil
	}}), full)
	require.Less(t, charged, int64(2<<20))
}

// A text of one long value is charged for all along its way, so that whoever charges can end
// the check; what is no UTF-8 is found wherever it is.
func TestCheckAsksAllTheTime(t *testing.T) {
	size := effort.Cases(1<<19, 4<<20)
	for name, text := range map[string]string{
		"string":  `"` + strings.Repeat("é", size/2) + `"`,
		"escapes": `"` + strings.Repeat(`\u00e9`, size/6) + `"`,
		"number":  "0." + strings.Repeat("1", size),
		"blanks":  strings.Repeat(" ", size) + "1",
		"vectors": "[[" + strings.Repeat("1,", size/2) + "1]]",
		"objects": "[" + strings.Repeat("{},", size/3) + "{}]",
	} {
		asked := 0
		require.NoError(t, jsontext.Check([]byte(text), jsontext.Options{Charge: func(int64) error { asked++; return nil }}), name)
		require.GreaterOrEqual(t, asked, len(text)>>16, name)
		enough := errors.New("enough")
		for last := 0; last < asked; last += 1 + asked/7 {
			n := 0
			err := jsontext.Check([]byte(text), jsontext.Options{Charge: func(int64) error {
				if n++; n > last {
					return enough
				}
				return nil
			}})
			require.ErrorIs(t, err, enough, name)
			require.Equal(t, last+1, n, "it is asked no more after an error")
		}
	}
	for _, at := range []int{1, 1<<16 - 2, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1 << 17, 200_000} {
		for _, bad := range []string{"\xff", "\xc3", "\x80", "\xe2\x82", strings.Repeat("\x80", 9)} {
			text := `["` + strings.Repeat("a", at) + bad + `","` + strings.Repeat("€", 50_000) + `"]`
			require.EqualError(t, jsontext.Check([]byte(text), jsontext.Options{}), "[0]: a string that is not UTF-8", "%d %q", at, bad)
			var fault *jsontext.Error
			require.ErrorAs(t, jsontext.Check([]byte(text), jsontext.Options{}), &fault)
			require.Equal(t, at+2, fault.Offset)
		}
	}
}

// What is read in steps is what encoding/json reads.
func TestUnquote(t *testing.T) {
	for _, text := range []string{"", "a", "é€😀x\"y\\", "\n", strings.Repeat("a😀", 100)} {
		raw, err := json.Marshal(text)
		require.NoError(t, err)
		for _, step := range []int{1, 3, 1000} {
			require.Equal(t, text, jsontext.Unquote(raw, step, func(int) bool { return true }))
		}
	}
	asked := 0
	require.Len(t, jsontext.Unquote([]byte(`"`+strings.Repeat("a", 1000)+`"`), 100, func(int) bool { asked++; return asked < 3 }), 300)
}

// Valid is what encoding/json says, wherever it asks, and asks no more after a no.
func FuzzValid(f *testing.F) {
	for _, text := range []string{`{"a":[1,2.5e3,"x\n\u0041"],"b":null}`, `[[-0,1],[]]`, `"\ud83d\ude00\ud800"`, `01`, `{"a":}`, `[1 2]`, " \t1\n", "\"\xff\"", "12345678", "{}\x00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, step := range []int{1, 3, 1 << 20} {
			asked := 0
			if valid := jsontext.Valid(text, step, func() bool { asked++; return true }); valid != json.Valid(text) {
				t.Fatalf("%q, asked every %d bytes: %v", text, step, valid)
			}
			for last := range asked {
				looks := 0
				if jsontext.Valid(text, step, func() bool { looks++; return looks <= last }) && looks > last {
					t.Fatalf("%q is valid, up to byte %d", text, last*step)
				}
				if looks != last+1 {
					t.Fatalf("%q: asked %d times, the last time in vain", text, looks)
				}
			}
		}
	})
}

func TestValidIsDeep(t *testing.T) {
	for _, depth := range []int{101, 10_000, 10_001} {
		text := []byte(strings.Repeat(`{"a":[`, depth/2) + strings.Repeat("[", depth%2) + strings.Repeat("]", depth%2) + strings.Repeat("]}", depth/2))
		require.Equal(t, json.Valid(text), jsontext.Valid(text, 100, func() bool { return true }), depth)
	}
}

// The grammar is that of encoding/json.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{`{"a":[1,2.5e3,"x\n\u0041"],"b":null}`, `[[-0,1],[]]`, `"\ud83d\ude00"`, `01`, `{"a":}`, `[1 2]`, " \t1\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		err := jsontext.Check(text, jsontext.Options{})
		var fault *jsontext.Error
		switch valid := json.Valid(text); {
		case err == nil && !valid:
			t.Fatalf("%q is taken, and is no JSON", text)
		case err != nil && valid && errors.As(err, &fault) && fault.Syntax:
			t.Fatalf("%q is refused: %v", text, err)
		}
	})
}

func TestMembers(t *testing.T) {
	var got []string
	visit := func(key string, value json.RawMessage) error {
		got = append(got, key+"="+string(value))
		return nil
	}
	require.NoError(t, jsontext.Members([]byte(` {"a": 1, "\u0062": [2 , {"a":3}], "a":null} `), visit))
	require.Equal(t, []string{"a=1", `b=[2 , {"a":3}]`, "a=null"}, got)
	for _, text := range []string{``, `[1]`, `null`, `{"a":1`, `{"a":}`, `{"a"}`, `{"a":1]`} {
		require.Error(t, jsontext.Members([]byte(text), visit), text)
	}
	stop := errors.New("enough")
	require.ErrorIs(t, jsontext.Members([]byte(`{"a":1,`), func(string, json.RawMessage) error { return stop }), stop)
}

// Every byte at every place of strings of all short lengths is taken as encoding/json takes it.
func TestValidIsThatOfJSONForEveryByteOfAString(t *testing.T) {
	for c := range 256 {
		for length := 1; length < 20; length++ {
			for at := range length {
				text := []byte(`"` + strings.Repeat(" \x7f~!#[]^", 3)[:length] + `"`)
				text[1+at] = byte(c)
				require.Equal(t, json.Valid(text), jsontext.Valid(text, len(text), nil), "%q", text)
			}
		}
	}
}
