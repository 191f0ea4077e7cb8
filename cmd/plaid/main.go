// Command plaid builds, searches and maintains late-interaction indexes.
package main

import (
	"os"

	"github.com/plaid-ir/plaid/cmd/plaid/command"
)

func main() { os.Exit(command.Main()) }
