// Command plaid is the plaid of one machine with the commands of a cluster.
package main

import (
	"os"

	cluster "github.com/plaid-ir/plaid/cluster/command"
	"github.com/plaid-ir/plaid/cmd/plaid/command"
)

func main() { os.Exit(command.Main(cluster.Extension())) }
