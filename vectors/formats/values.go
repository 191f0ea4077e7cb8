package formats

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// appendValue appends the value of row i as JSON, in the same way as the Python package stores values of
// tables: NaN, which means a missing number, is null; decimals are numbers; times are ISO 8601.
func appendValue(b []byte, a arrow.Array, i int) ([]byte, error) {
	if a.IsNull(i) {
		return append(b, "null"...), nil
	}
	if _, ok := a.DataType().(arrow.DecimalType); ok {
		return appendDecimal(b, fmt.Sprint(a.GetOneForMarshal(i)))
	}
	number := 0.0 // of a float
	switch v := a.(type) {
	case array.ExtensionArray:
		if _, ok := v.Storage().(array.ListLike); ok {
			return appendValue(b, v.Storage(), i)
		}
	case *array.Float16:
		number = float64(v.Value(i).Float32())
	case *array.Float32:
		number = float64(v.Value(i))
	case *array.Float64:
		number = v.Value(i)
	case array.StringLike:
		if text := v.Value(i); !utf8.ValidString(text) {
			return b, fmt.Errorf("%.40q is not UTF-8", text)
		}
	case *array.Timestamp:
		zone := v.DataType().(*arrow.TimestampType)
		toTime, err := zone.GetToTimeFunc()
		if err != nil {
			return b, err
		}
		layout := "2006-01-02T15:04:05"
		if zone.TimeZone != "" {
			return appendTime(b, toTime(v.Value(i)), layout, "-07:00"), nil
		}
		return appendTime(b, toTime(v.Value(i)), layout, ""), nil
	case *array.Time32:
		return appendTime(b, v.Value(i).ToTime(v.DataType().(*arrow.Time32Type).Unit), time.TimeOnly, ""), nil
	case *array.Time64:
		return appendTime(b, v.Value(i).ToTime(v.DataType().(*arrow.Time64Type).Unit), time.TimeOnly, ""), nil
	case *array.Dictionary:
		return appendValue(b, v.Dictionary(), v.GetValueIndex(i))
	case *array.RunEndEncoded:
		return appendValue(b, v.Values(), v.GetPhysicalIndex(i))
	case array.ListLike:
		return appendList(b, v, i)
	case *array.Struct:
		return appendStruct(b, v, i)
	}
	switch {
	case math.IsNaN(number):
		return append(b, "null"...), nil
	case math.IsInf(number, 0):
		return b, fmt.Errorf("%v: null stands for a number that is missing", number)
	}
	value, err := jsontext.MarshalUnescaped(a.GetOneForMarshal(i))
	return append(b, value...), err
}

// appendList appends the list of row i as JSON.
func appendList(b []byte, v array.ListLike, i int) (_ []byte, err error) {
	b = append(b, '[')
	from, to := v.ValueOffsets(i)
	for j := from; j < to; j++ {
		if j > from {
			b = append(b, ',')
		}
		if b, err = appendValue(b, v.ListValues(), int(j)); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

// appendStruct appends the structure of row i as a JSON object.
func appendStruct(b []byte, v *array.Struct, i int) ([]byte, error) {
	b = append(b, '{')
	for j, field := range v.DataType().(*arrow.StructType).Fields() {
		if j > 0 {
			b = append(b, ',')
		}
		key, err := jsontext.MarshalUnescaped(field.Name)
		if err != nil {
			return b, err
		}
		if b, err = appendValue(append(append(b, key...), ':'), v.Field(j), i); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// appendTime appends a time as Python's isoformat does: a fraction has 6 digits, or 9 if necessary. The
// layout of the time zone follows the fraction. "" means none.
func appendTime(b []byte, t time.Time, layout, zoneLayout string) []byte {
	switch n := t.Nanosecond(); {
	case n%1000 != 0:
		layout += ".000000000"
	case n != 0:
		layout += ".000000"
	}
	return append(t.AppendFormat(append(b, '"'), layout+zoneLayout), '"')
}

// appendDecimal appends a decimal as a number. It returns an error if float64 would lose digits.
func appendDecimal(b []byte, text string) ([]byte, error) {
	if strings.Contains(text, ".") {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	if strings.Contains(text, ".") {
		number, err := strconv.ParseFloat(text, 64)
		if err != nil || strconv.FormatFloat(number, 'f', -1, 64) != text {
			return b, fmt.Errorf("%s has more digits than a number keeps: make it a text or a float", text)
		}
	}
	return append(b, text...), nil
}
