// Man writes the manual pages of plaid into a folder: plaid.1, and plaid-COMMAND.1 for each
// command, from the same texts as --help.
//
//	go run ./cmd/plaid/man DIR
package main

import (
	"log"
	"os"

	"github.com/spf13/cobra/doc"

	"github.com/plaid-ir/plaid/cmd/plaid/command"
	"github.com/plaid-ir/plaid/index"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("man: want a folder that is there")
	}
	header := &doc.GenManHeader{Section: "1", Source: "plaid " + index.Version(), Manual: "plaid"}
	if err := doc.GenManTree(command.Root(), header, os.Args[1]); err != nil {
		log.Fatal("man: ", err)
	}
}
