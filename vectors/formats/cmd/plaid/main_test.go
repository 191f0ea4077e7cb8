package main

import (
	"errors"
	"os"
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
			return errors.Join(err, engineFolder(env.WorkDir, "fast-plaid"), engineFolder(env.WorkDir, "next-plaid"))
		},
	})
}

// engineFolder makes an index folder of another engine, with its metadata.db.
func engineFolder(dir, engine string) error {
	to := filepath.Join(dir, engine)
	if err := os.CopyFS(to, os.DirFS(filepath.Join("../../../../index/interop/testdata/real", engine))); err != nil {
		return err
	}
	db, err := os.ReadFile(filepath.Join("../../sqlite/testdata", engine+".db"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "metadata.db"), db, 0o666)
}
