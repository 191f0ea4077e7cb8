// Package amx has the products of bytes of package native for AMX; everything
// else is done by avx512.
package amx
