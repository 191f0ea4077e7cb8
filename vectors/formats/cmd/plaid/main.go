// Command plaid is the program of cmd/plaid that reads Parquet, Arrow and dataset folders
// of Hugging Face as well.
package main

import (
	"os"

	"github.com/plaid-ir/plaid/cmd/plaid/command"
	"github.com/plaid-ir/plaid/vectors/formats"
)

func main() {
	formats.Register()
	os.Exit(command.Main())
}
