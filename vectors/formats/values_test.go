package formats_test

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/stretchr/testify/require"

	"github.com/plaid-ir/plaid/vectors"
)

// Values are stored as the Python package stores those of tables.
func TestValues(t *testing.T) {
	register()
	instant := time.Date(2020, 1, 2, 3, 4, 5, 120_000_000, time.UTC)
	stamp := func(name string, typ *arrow.TimestampType, at time.Time) column {
		return column{name, typ, func(b array.Builder) {
			value, err := arrow.TimestampFromTime(at, typ.Unit)
			require.NoError(t, err)
			b.(*array.TimestampBuilder).Append(value)
		}}
	}
	floats := func(name string, x float64) column {
		return column{name, arrow.PrimitiveTypes.Float64, func(b array.Builder) { b.(*array.Float64Builder).Append(x) }}
	}
	decimal := func(n int64) column {
		return column{"v", &arrow.Decimal128Type{Precision: 20, Scale: 2}, func(b array.Builder) {
			b.(*array.Decimal128Builder).Append(decimal128.FromI64(n))
		}}
	}
	list := column{"v", arrow.ListOf(arrow.StructOf(arrow.Field{Name: "é", Type: arrow.PrimitiveTypes.Float64, Nullable: true})), func(b array.Builder) {
		outer := b.(*array.ListBuilder)
		fields := outer.ValueBuilder().(*array.StructBuilder)
		outer.Append(true)
		for _, x := range []float64{0.5, math.NaN()} {
			fields.Append(true)
			fields.FieldBuilder(0).(*array.Float64Builder).Append(x)
		}
	}}
	us := &arrow.TimestampType{Unit: arrow.Microsecond}
	for want, c := range map[string]column{
		`null`:                               floats("v", math.NaN()),
		`0.5`:                                floats("v", 0.5),
		`19.99`:                              decimal(1999),
		`2`:                                  decimal(200),
		`-0.05`:                              decimal(-5),
		`"2020-01-02T03:04:05.120000"`:       stamp("v", us, instant),
		`"2020-01-02T03:04:05"`:              stamp("v", us, instant.Truncate(time.Second)),
		`"2020-01-02T03:04:05.120000001"`:    stamp("v", &arrow.TimestampType{Unit: arrow.Nanosecond}, instant.Add(1)),
		`"2020-01-02T03:04:05.120000+00:00"`: stamp("v", &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, instant),
		`[{"é":0.5},{"é":null}]`:             list,
		`"03:04:05.001000"`: {"v", arrow.FixedWidthTypes.Time64us, func(b array.Builder) {
			b.(*array.Time64Builder).Append(arrow.Time64((3*3600+4*60+5)*1_000_000 + 1000))
		}},
	} {
		for _, format := range []string{"parquet", "file"} {
			t.Run(want+format, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "x."+map[string]string{"parquet": "parquet", "file": "arrow"}[format])
				none := matrices("vectors", arrow.PrimitiveTypes.Float32, 1, false, nil)
				none.fill = func(b array.Builder) { b.AppendNull() } // a document without tokens
				write(t, path, format, 1, c, none)
				s, err := vectors.Open(ctx, vectors.Files{Vectors: path})
				require.NoError(t, err)
				defer s.Close()
				require.Equal(t, []int{1, 0}, []int{s.Len(), s.Rows(0)})
				for d, err := range s.Docs(ctx, 0, 1) {
					require.NoError(t, err)
					require.Equal(t, `{"v":`+want+`}`, string(d.Payload))
				}
			})
		}
	}
}
