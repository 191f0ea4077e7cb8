package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/plaid-ir/plaid/internal/jsontext"
)

// ImageField and GridField are the fields of a payload that make its document a page: a document whose
// tokens are those of an image.
const (
	ImageField = "image"
	GridField  = "grid"
)

// Page identifies the image whose tokens a document has.
type Page struct {
	// Image is the address of the image, which begins with http:// or https://, or the path of a
	// file, with slashes, below a folder that the reader knows.
	Image string `json:"image"`
	// Grid maps tokens to cells of the image. nil means that this is unknown.
	Grid *Grid `json:"grid,omitempty"`
}

// Grid divides an image into cells. Each cell has a token. The tokens of the cells are in order,
// row after row, from the top left, and follow First other tokens. Tokens without cell are special.
// In JSON a grid is [rows, columns] or [rows, columns, first].
type Grid struct{ Rows, Columns, First int }

// maxCells is the maximum number of cells of an image, maxFirst that of the tokens before them.
const maxCells, maxFirst = 1 << 20, 1 << 20

// Cells returns the number of cells.
func (g *Grid) Cells() int { return g.Rows * g.Columns }

// End returns the index of the token after the last cell, which is the minimum number of tokens.
func (g *Grid) End() int { return g.First + g.Cells() }

// Tiles returns the grid of squares of side × side cells.
func (g *Grid) Tiles(side int) *Grid {
	return &Grid{Rows: (g.Rows + side - 1) / side, Columns: (g.Columns + side - 1) / side, First: g.First}
}

// CheckTokens returns [ErrShape] if a document has fewer tokens than the grid needs.
func (g *Grid) CheckTokens(tokens int) error {
	if g.End() <= tokens {
		return nil
	}
	return fmt.Errorf("%w: field %s: %d × %d cells behind %d tokens; the document has %d",
		ErrShape, GridField, g.Rows, g.Columns, g.First, tokens)
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
		return fmt.Errorf("%w: field %s is %.60s; want [rows, columns] or [rows, columns, tokens before them]",
			ErrFormat, GridField, b)
	}
	n = append(n, 0) // First, if b has two numbers
	if n[0] < 1 || n[1] < 1 || n[0] > maxCells || n[1] > maxCells/n[0] || n[2] < 0 || n[2] > maxFirst {
		return fmt.Errorf("%w: field %s is %s; 1 to %d cells are possible, and up to %d tokens before them",
			ErrFormat, GridField, b, maxCells, maxFirst)
	}
	*g = Grid{n[0], n[1], n[2]}
	return nil
}

// PageFromPayload returns the page in the payload of a document, or nil if [ImageField] is not a string. The
// error is [ErrFormat] for an invalid grid of a page.
func PageFromPayload(payload []byte) (*Page, error) {
	// Most payloads need not be parsed: they contain neither the name nor an escape of its letters.
	mayHaveImage := bytes.Contains(payload, []byte(`"`+ImageField+`"`)) || bytes.Contains(payload, []byte(`\u006`))
	if !mayHaveImage || !json.Valid(payload) {
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
		return nil, nil // not an object, or a field with another meaning
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
