package interop

import (
	"errors"
	"strings"
)

// sqliteColumns are the columns that a CREATE TABLE names, and which of them is the rowid;
// −1: none is.
func sqliteColumns(sql string) (columns []column, rowid int, err error) {
	rowid = -1
	words, err := sqliteWords(sql)
	if err != nil {
		return nil, -1, err
	}
	first := 0
	for first < len(words) && words[first] != "(" {
		first++
	}
	if first == len(words) {
		return nil, -1, errors.New("it has no columns")
	}
	depth, begin := 0, first+1
	for i := first; i < len(words); i++ {
		switch words[i] {
		case "(":
			depth++
		case ")":
			depth--
		}
		if !(depth == 0 || depth == 1 && words[i] == ",") {
			continue
		}
		if i == begin {
			return nil, -1, errors.New("it has a column without a name")
		}
		name, rest := words[begin], strings.ToUpper(strings.Join(words[begin+1:i], " "))
		begin = i + 1
		switch upper := strings.ToUpper(name); {
		case upper == "CONSTRAINT" || upper == "PRIMARY" || upper == "UNIQUE" || upper == "CHECK" || upper == "FOREIGN":
		default:
			if rest == "INTEGER" || strings.HasPrefix(rest, "INTEGER ") {
				if strings.Contains(rest, "PRIMARY KEY") && !strings.Contains(rest, "PRIMARY KEY DESC") {
					rowid = len(columns)
				}
			}
			if len(name) > maxName {
				return nil, -1, errors.New("it has a column with a name of many bytes")
			}
			columns = append(columns, column{name: strings.TrimPrefix(name, quotedName), blob: strings.HasPrefix(rest, "BLOB")})
		}
		if depth == 0 {
			if len(words) > begin {
				return nil, -1, errors.New("it is not one with rowids alone") // WITHOUT ROWID, STRICT
			}
			return columns, rowid, nil
		}
	}
	return nil, -1, errors.New("its columns do not end")
}

// maxName bounds the name of a column, which each document repeats.
const maxName = 1024

// quotedName begins a name that was quoted, which is no word of SQL.
const quotedName = "\""

// sqliteSpace is what parts words. Other bytes, also those of UTF-8, are in names.
const sqliteSpace = " \t\n\v\f\r"

// sqliteWords takes SQL apart into names, words and signs.
func sqliteWords(sql string) (words []string, err error) {
	for i := 0; i < len(sql); {
		switch c := sql[i]; {
		case strings.IndexByte(sqliteSpace, c) >= 0:
			i++
		case strings.IndexByte("\"'`[", c) >= 0:
			end := c
			if c == '[' {
				end = ']'
			}
			var name strings.Builder
			name.WriteString(quotedName)
			for i++; ; i++ {
				if i >= len(sql) {
					return nil, errors.New("a name does not end")
				}
				if sql[i] == end {
					if i++; end == ']' || i >= len(sql) || sql[i] != end { // twice: itself
						break
					}
				}
				name.WriteByte(sql[i])
			}
			words = append(words, name.String())
		case c == '(' || c == ')' || c == ',':
			words = append(words, string(c))
			i++
		default:
			begin := i
			for i < len(sql) && strings.IndexByte(sqliteSpace+"(),\"'`[", sql[i]) < 0 {
				i++
			}
			words = append(words, sql[begin:i])
		}
	}
	return words, nil
}
