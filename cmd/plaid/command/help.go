package command

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Help is as wide as the terminal within these bounds, and so wide elsewhere.
const (
	leastHelpWidth = 40
	mostHelpWidth  = 100
	helpWidth      = 80
)

// textWidth is how wide texts for reading are printed on stdout.
func (t *stdio) textWidth() int {
	if t.outWidth == 0 {
		return helpWidth
	}
	return min(max(t.outWidth, leastHelpWidth), mostHelpWidth)
}

func (a *app) help(cmd *cobra.Command, _ []string) {
	_, _ = cmd.OutOrStdout().Write([]byte(helpText(cmd, a.textWidth())))
}

// helpText is what --help prints of a command.
func helpText(cmd *cobra.Command, width int) string {
	var b strings.Builder
	for _, p := range paragraphs(cmd.Long) {
		b.WriteString(p.text(width) + "\n")
	}
	if cmd.Name() == exitName {
		for _, e := range exitTable {
			b.WriteString(entry(fmt.Sprintf("  %-4d %s", e.code, e.word), e.what, exitColumn, width))
		}
	}
	if cmd.Runnable() {
		b.WriteString("Usage:\n")
		b.WriteString(hanging("  ", "    ", cmd.UseLine(), width) + "\n")
	}
	if cmd.HasExample() {
		b.WriteString("Examples:\n")
		for line := range strings.Lines(cmd.Example) {
			b.WriteString(continued(line, width))
		}
		b.WriteByte('\n')
	}
	for _, g := range cmd.Groups() {
		fmt.Fprintf(&b, "%s\n", g.Title)
		for _, c := range cmd.Commands() {
			if c.GroupID == g.ID && c.IsAvailableCommand() {
				b.WriteString(entry("  "+c.Name(), c.Short, commandColumn, width))
			}
		}
		b.WriteByte('\n')
	}
	for _, set := range flagSets(cmd) {
		b.WriteString(set.title + ":\n")
		for _, f := range set.flags {
			b.WriteString(entry("  "+flagNames(f), flagUsage(f), flagColumn, width))
		}
		b.WriteByte('\n')
	}
	switch {
	case !cmd.HasParent():
		fmt.Fprintf(&b, "%s COMMAND --help describes a command, %s help exit the exit codes.\n", cmd.Name(), cmd.Name())
	case cmd.Runnable():
		b.WriteString("Exit codes: plaid help exit\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// paragraph is part of a help text: prose that is wrapped, or lines that are kept, as
// those of tables, which begin with blanks.
type paragraph struct {
	lines []string
	kept  bool
}

// paragraphs parts a text at empty lines, and where lines begin to be indented.
func paragraphs(text string) (list []paragraph) {
	fresh := true
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		kept := strings.HasPrefix(line, "  ")
		switch {
		case line == "":
			fresh = true
			continue
		case fresh || kept != list[len(list)-1].kept:
			list = append(list, paragraph{kept: kept})
		}
		last := &list[len(list)-1]
		last.lines, fresh = append(last.lines, line), false
	}
	return list
}

func (p paragraph) text(width int) string {
	if p.kept {
		return strings.Join(p.lines, "\n") + "\n"
	}
	return hanging("", "", strings.Join(p.lines, " "), width)
}

// flagSet is flags under a title.
type flagSet struct {
	title string
	flags []*pflag.Flag
}

// flagSets are the flags that the help of a command lists.
func flagSets(cmd *cobra.Command) (sets []flagSet) {
	if !cmd.Runnable() {
		return nil
	}
	if own := shown("Flags", cmd.LocalFlags()); len(own.flags) > 0 {
		sets = byTopic(own)
	}
	if every := shown("Flags of every command", cmd.InheritedFlags()); len(every.flags) > 0 {
		sets = append(sets, every)
	}
	return sets
}

// shown are the flags of a set that are not hidden.
func shown(title string, set *pflag.FlagSet) flagSet {
	s := flagSet{title: title}
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			s.flags = append(s.flags, f)
		}
	})
	return s
}

// flagNames reads like: -k, --k N.
func flagNames(f *pflag.Flag) string {
	names := "    --" + f.Name
	if f.Shorthand != "" {
		names = "-" + f.Shorthand + ", --" + f.Name
	}
	if name, _ := pflag.UnquoteUsage(f); name != "" {
		if f.NoOptDefVal != "" {
			return names + "[=" + name + "]"
		}
		return names + " " + name
	}
	return names
}

// flagUsage is what a flag is for, with the value that it has if it is not given.
func flagUsage(f *pflag.Flag) string {
	_, usage := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "", "0", "0s", "0 B", "false", "[]":
		return usage
	}
	return usage + " (default " + strings.Trim(f.DefValue, "[]") + ")"
}

// Columns at which descriptions begin.
const (
	commandColumn = 15
	flagColumn    = 30
	exitColumn    = 24
)

// continued is a command line, parted where a shell goes on with the next line.
func continued(line string, width int) string {
	line = strings.TrimRight(line, "\n")
	text := strings.TrimLeft(line, " ")
	indent := line[:len(line)-len(text)]
	var b strings.Builder
	at, quote := 0, rune(0)
	word := func(w string) {
		n := utf8.RuneCountInString(w)
		switch {
		case at == 0:
			b.WriteString(indent + w)
			at = len(indent) + n
			return
		case at+1+n+len(" \\") > width:
			b.WriteString(" \\\n" + indent + "  " + w)
			at = len(indent) + 2 + n
			return
		}
		b.WriteString(" " + w)
		at += 1 + n
	}
	begin := 0
	for i, r := range text {
		switch {
		case r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case quote == 0 && r == ' ':
			word(text[begin:i])
			begin = i + 1
		}
	}
	word(text[begin:])
	return b.String() + "\n"
}

// entry is a name with its description in a column of its own, below the name where
// that is too long.
func entry(name, text string, column, width int) string {
	if width < 2*column {
		column = 8
	}
	first, indent := name, strings.Repeat(" ", column)
	if n := utf8.RuneCountInString(name); n+2 > column {
		return name + "\n" + hanging(indent, indent, text, width)
	} else {
		first += strings.Repeat(" ", column-n)
	}
	return hanging(first, indent, text, width)
}

// hanging wraps words into lines of so many columns: the first begins with first, the
// others with rest. A word that is longer than a line has one of its own.
func hanging(first, rest, text string, width int) string {
	var b strings.Builder
	b.WriteString(first)
	at, begun := utf8.RuneCountInString(first), false
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if begun && at+1+n > width {
			b.WriteString("\n" + rest)
			at, begun = utf8.RuneCountInString(rest), false
		}
		if begun {
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
		begun = true
	}
	return b.String() + "\n"
}
