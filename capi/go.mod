module github.com/plaid-ir/plaid/capi

go 1.26.0

replace github.com/plaid-ir/plaid => ../

require (
	github.com/plaid-ir/plaid v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	golang.org/x/sys v0.49.0
)

require (
	github.com/ebitengine/purego v0.11.3 // indirect
	github.com/klauspost/compress v1.20.1 // indirect
	github.com/mikelolasagasti/xz v1.0.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
