package beir_test

import (
	"context"
	"fmt"
	"log"
	"path/filepath"

	"github.com/plaid-ir/plaid/eval/beir"
)

// A test collection from vectors to measures. The sample of the repository has 46
// documents of SciFact.
func ExampleRun() {
	dir := filepath.Join("..", "..", "docs", "examples", "quickstart", "scifact-sample")
	in, err := beir.Folder(filepath.Join(dir, "vectors"))
	if err != nil {
		log.Fatal(err)
	}
	report, err := beir.Run(context.Background(), dir, in, beir.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Docs, "documents,", report.Queries, "judged queries")
	for i, m := range report.Result.Measures[:2] {
		fmt.Printf("%v %.2f\n", m, report.Result.Means[i])
	}
	// Output:
	// 46 documents, 24 judged queries
	// nDCG@10 0.87
	// R@100 1.00
}
