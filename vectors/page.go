package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// ImageField and GridField are the fields of a payload that make its document a page: the
// tokens of a picture.
const (
	ImageField = "image"
	GridField  = "grid"
)

// Page says which picture the tokens of a document are of.
type Page struct {
	// Image is the picture: an address that begins with http:// or https://, or the path of
	// a file, with slashes, below a folder that the reader knows.
	Image string `json:"image"`
	// Grid says which tokens are parts of the picture; nil: nobody says.
	Grid *Grid `json:"grid,omitempty"`
}

// Grid cuts a picture into cells, each of which has a token. They are in order row after
// row, from the top left, behind First other tokens. Tokens that are no cell are special.
// In JSON a grid is [rows, columns] or [rows, columns, first].
type Grid struct{ Rows, Columns, First int }

// maxCells bounds the cells of a picture, maxFirst the tokens before them.
const maxCells, maxFirst = 1 << 20, 1 << 20

// Cells is how many there are.
func (g *Grid) Cells() int { return g.Rows * g.Columns }

// End is the number of the token behind the last cell: a document has as many at least.
func (g *Grid) End() int { return g.First + g.Cells() }

// Tiles is the grid of the squares of so many cells a side.
func (g *Grid) Tiles(side int) *Grid {
	return &Grid{Rows: (g.Rows + side - 1) / side, Columns: (g.Columns + side - 1) / side, First: g.First}
}

// Check is [ErrShape] if a document of so many tokens has too few.
func (g *Grid) Check(tokens int) error {
	if g.End() <= tokens {
		return nil
	}
	return fmt.Errorf("%w: field %s: %d × %d cells behind %d tokens; the document has %d", ErrShape, GridField, g.Rows, g.Columns, g.First, tokens)
}

// MarshalJSON implements json.Marshaler.
func (g Grid) MarshalJSON() ([]byte, error) {
	if g.First == 0 {
		return json.Marshal([]int{g.Rows, g.Columns})
	}
	return json.Marshal([]int{g.Rows, g.Columns, g.First})
}

// UnmarshalJSON implements json.Unmarshaler.
func (g *Grid) UnmarshalJSON(b []byte) error {
	var n []int
	if err := json.Unmarshal(b, &n); err != nil || len(n) < 2 || len(n) > 3 || bytes.Contains(b, []byte("null")) {
		return fmt.Errorf("%w: field %s is %.60s; want [rows, columns] or [rows, columns, tokens before them]", ErrFormat, GridField, b)
	}
	n = append(n, 0)
	if n[0] < 1 || n[1] < 1 || n[0] > maxCells || n[1] > maxCells/n[0] || n[2] < 0 || n[2] > maxFirst {
		return fmt.Errorf("%w: field %s is %s; 1 to %d cells are possible, and up to %d tokens before them", ErrFormat, GridField, b, maxCells, maxFirst)
	}
	*g = Grid{n[0], n[1], n[2]}
	return nil
}

// PageOf is what a payload says of its document as a page; nil: it is none, since it has no
// text as [ImageField]. The error is [ErrFormat] where a page has a grid that is none.
func PageOf(payload []byte) (*Page, error) {
	// Most payloads need not be read.
	if !bytes.Contains(payload, []byte(`"`+ImageField+`"`)) && !bytes.Contains(payload, []byte(`\u006`)) || !json.Valid(payload) {
		return nil, nil
	}
	var image, grid json.RawMessage
	err := jsontext.Members(payload, func(key string, v json.RawMessage) error {
		switch key {
		case ImageField:
			image = v
		case GridField:
			grid = v
		}
		return nil
	})
	p := &Page{}
	if err != nil || len(image) == 0 || image[0] != '"' || json.Unmarshal(image, &p.Image) != nil {
		return nil, nil // no object, or another kind of field
	}
	if grid == nil || string(grid) == "null" {
		return p, nil
	}
	p.Grid = &Grid{}
	if err := p.Grid.UnmarshalJSON(grid); err != nil {
		return nil, err
	}
	return p, nil
}
