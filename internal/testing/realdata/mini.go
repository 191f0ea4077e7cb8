package realdata

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Mini returns a folder of the model colbert-mini with its weights as safetensors. In
// shared, they are the initializers of an ONNX graph, in float16 and transposed. The folder
// is removed when the test ends.
func Mini(t testing.TB) string {
	t.Helper()
	source := Path(t, "models", "colbert-mini")
	dir := t.TempDir()
	b, err := cachedMini(filepath.Join(source, "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "tokenizer.json"} {
		b, err := os.ReadFile(filepath.Join(source, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

var (
	miniLock sync.Mutex
	miniFile = map[string][]byte{}
)

// cachedMini returns the safetensors file of a graph. A process converts it once.
func cachedMini(path string) ([]byte, error) {
	miniLock.Lock()
	defer miniLock.Unlock()
	if b := miniFile[path]; b != nil {
		return b, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out, err := safetensorsFromGraph(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	miniFile[path] = out
	return out, nil
}

// safetensorsFromGraph converts the initializers of a graph to a safetensors file. Their names are those of
// a BERT, except for "word", "pos" (which includes the row of token type 0), and the suffix
// _h of float16 tensors. Weights of products are transposed.
func safetensorsFromGraph(model []byte) ([]byte, error) {
	type tensor struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
		data    []byte
	}
	tensors := map[string]*tensor{}
	err := fields(model, func(field protowire.Number, _ uint64, graph []byte) error {
		if field != 7 { // ModelProto.graph
			return nil
		}
		return fields(graph, func(field protowire.Number, _ uint64, b []byte) error {
			if field != 5 { // GraphProto.initializer
				return nil
			}
			x, name, width := &tensor{}, "", 0
			err := fields(b, func(field protowire.Number, n uint64, b []byte) error {
				switch field {
				case 1: // TensorProto.dims
					x.Shape = append(x.Shape, int(n))
				case 2: // TensorProto.data_type: 1 is float32, 10 is float16
					x.DType, width = map[uint64]string{1: "F32", 10: "F16"}[n], map[uint64]int{1: 4, 10: 2}[n]
				case 8: // TensorProto.name
					name = string(b)
				case 9: // TensorProto.raw_data
					x.data = b
				}
				return nil
			})
			switch name {
			case "word":
				name = "bert.embeddings.word_embeddings.weight"
			case "pos":
				name = "bert.embeddings.position_embeddings.weight"
			default:
				name = strings.TrimSuffix(name, "_h")
				if strings.HasSuffix(name, ".weight") && len(x.Shape) == 2 {
					x.data = transposed(x.data, x.Shape[0], x.Shape[1], width)
					slices.Reverse(x.Shape)
				}
			}
			if strings.Contains(name, ".") { // the others are constants of the graph
				tensors[name] = x
			}
			return err
		})
	})
	words := tensors["bert.embeddings.word_embeddings.weight"]
	if err != nil || words == nil {
		return nil, errors.Join(errors.New("is no graph of colbert-mini"), err)
	}
	hidden := words.Shape[1]
	tensors["bert.embeddings.token_type_embeddings.weight"] = &tensor{
		DType: "F32",
		Shape: []int{2, hidden},
		data:  make([]byte, 8*hidden),
	}
	end := 0
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		data = append(data, x.data...)
		x.Offsets, end = [2]int{end, len(data)}, len(data)
	}
	header, err := json.Marshal(tensors)
	if err != nil {
		return nil, err
	}
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header, data), nil
}

// transposed returns a transposed matrix of values of width bytes.
func transposed(b []byte, rows, columns, width int) []byte {
	out := make([]byte, len(b))
	for i := range rows {
		for j := range columns {
			copy(out[(j*rows+i)*width:][:width], b[(i*columns+j)*width:])
		}
	}
	return out
}

// fields calls visit for each field of a protobuf message, with its number or its bytes.
func fields(b []byte, visit func(field protowire.Number, n uint64, b []byte) error) error {
	for len(b) > 0 {
		field, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		value := b[size:]
		n := uint64(math.MaxUint64)
		var body []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(value)
		case protowire.BytesType:
			body, size = protowire.ConsumeBytes(value)
		default:
			size = protowire.ConsumeFieldValue(field, kind, value)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := visit(field, n, body); err != nil {
			return err
		}
		b = value[size:]
	}
	return nil
}
