// Command plaid is the program of cmd/plaid that can also read Parquet, Arrow, dataset folders of Hugging
// Face, and the SQLite files of fast-plaid and next-plaid.
package main

import (
	"os"

	"github.com/plaid-ir/plaid/cmd/plaid/command"
	"github.com/plaid-ir/plaid/vectors/formats"
	"github.com/plaid-ir/plaid/vectors/formats/sqlite"
)

func main() {
	formats.Register()
	sqlite.Register()
	os.Exit(command.Main())
}
