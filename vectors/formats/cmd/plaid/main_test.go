package main

import (
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"plaid": main}) }

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			data, err := filepath.Abs("../../testdata")
			env.Setenv("DATA", data)
			env.Setenv("NANO", filepath.Join(data, "../../../docs/examples/quickstart/colbert-nano"))
			return err
		},
	})
}
