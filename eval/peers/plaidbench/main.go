// Command plaid times plaid for the comparison with other engines; see
// ../README.md. Results are JSON on standard output.
//
//	plaid kernels NAME=DATA=K...
//	plaid search DATA INDEX K SECONDS
//	plaid throughput DATA INDEX K SECONDS
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
)

var errUsage = errors.New("usage: kernels NAME=DATA=K... | search|throughput DATA INDEX K SECONDS")

func main() {
	result, err := run(context.Background(), os.Args[1:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plaid:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (any, error) {
	if len(args) == 0 {
		return nil, errUsage
	}
	switch command, args := args[0], args[1:]; {
	case command == "kernels":
		return timeKernels(ctx, args)
	case (command == "search" || command == "throughput") && len(args) == 4:
		k, err := strconv.Atoi(args[2])
		if err != nil {
			return nil, fmt.Errorf("k: %w", err)
		}
		seconds, err := strconv.ParseFloat(args[3], 64)
		if err != nil {
			return nil, fmt.Errorf("seconds: %w", err)
		}
		if command == "throughput" {
			return timeAll(ctx, args[0], args[1], k, seconds)
		}
		return timeSearch(ctx, args[0], args[1], k, seconds)
	}
	return nil, errUsage
}
