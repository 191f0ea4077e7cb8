package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plaid-ir/plaid/cmd/plaid/flags"
	"github.com/plaid-ir/plaid/index"
	"github.com/plaid-ir/plaid/internal/files"
)

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man [DIR]",
		Short: "Write the manual pages",
		Long: `
Write the manual pages, made of the same texts as --help, into a folder, which is
made if it is not there: plaid.1, and plaid-COMMAND.1 for each command, also for
those of a command (plaid-cluster-node.1). Without DIR, plaid.1 goes to stdout.`,
		Example: `  plaid man ~/.local/share/man/man1
  plaid man > plaid.1`,
		Args: takes("DIR…"),
		RunE: a.command(func(ctx context.Context, args []string) error {
			if len(args) == 0 {
				return a.print([]byte(manPage(a.root)))
			}
			if err := takes("DIR")(nil, args); err != nil {
				return flags.UsageError{Err: err}
			}
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return err
			}
			for _, c := range withPages(a.root) {
				err := files.WriteAtomic(ctx, filepath.Join(args[0], pageName(c)+".1"), func(w io.Writer) error {
					_, err := io.WriteString(w, manPage(c))
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// withPages are a command and those below it.
func withPages(cmd *cobra.Command) []*cobra.Command {
	pages := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.Runnable() && !c.Hidden {
			pages = append(pages, withPages(c)...)
		}
	}
	return pages
}

// pageName is plaid-search for plaid search.
func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the page of a command in roff, with the macros of man(7). It has no date,
// so that the same program writes the same pages.
func manPage(cmd *cobra.Command) string {
	p := &page{}
	p.macro("TH", strings.ToUpper(pageName(cmd)), "1", "", "plaid "+index.Version(), "plaid")
	p.macro("SH", "NAME")
	p.line(pageName(cmd) + " - " + cmd.Short)
	p.macro("SH", "SYNOPSIS")
	p.line(cmd.UseLine())
	p.macro("SH", "DESCRIPTION")
	p.prose(cmd.Long)
	for _, g := range cmd.Groups() {
		p.macro("SS", strings.TrimSuffix(g.Title, ":"))
		p.commands(cmd, g.ID)
	}
	if len(cmd.Groups()) == 0 && cmd.HasAvailableSubCommands() {
		p.macro("SS", "Commands")
		p.commands(cmd, "")
	}
	for _, set := range flagSets(cmd) {
		p.macro("SH", strings.ToUpper(set.title))
		for _, f := range set.flags {
			p.flag(f)
		}
	}
	if cmd.Example != "" {
		p.macro("SH", "EXAMPLES")
		p.kept(strings.Split(cmd.Example, "\n"))
	}
	if cmd.HasParent() {
		p.macro("SH", "SEE ALSO")
		p.line("plaid(1), which has the exit codes")
		return p.String()
	}
	p.macro("SH", "EXIT STATUS")
	for _, e := range exitTable {
		p.macro("TP")
		p.line(fmt.Sprint(e.code))
		p.line(e.what)
	}
	return p.String()
}

// page is a manual page as it is written.
type page struct{ strings.Builder }

// macro writes a request with its arguments.
func (p *page) macro(name string, args ...string) {
	p.WriteString("." + name)
	for _, arg := range args {
		p.WriteString(` "` + strings.ReplaceAll(escaped(arg), `"`, `\(dq`) + `"`)
	}
	p.WriteByte('\n')
}

// line writes text that is no request, whatever it begins with.
func (p *page) line(text string) {
	text = escaped(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	p.WriteString(text + "\n")
}

// escaped is text that roff prints as it is.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
}

// commands lists those of a command that are in a group.
func (p *page) commands(cmd *cobra.Command, group string) {
	for _, c := range cmd.Commands() {
		if c.GroupID == group && c.IsAvailableCommand() {
			p.macro("TP")
			p.line(pageName(c) + "(1)")
			p.line(c.Short)
		}
	}
}

func (p *page) prose(text string) {
	for i, part := range paragraphs(text) {
		if i > 0 {
			p.macro("PP")
		}
		if part.kept {
			p.kept(part.lines)
			continue
		}
		for _, line := range part.lines {
			p.line(line)
		}
	}
}

// kept writes lines that are not filled.
func (p *page) kept(lines []string) {
	p.macro("nf")
	for _, line := range lines {
		p.line(line)
	}
	p.macro("fi")
}

func (p *page) flag(f *pflag.Flag) {
	p.macro("TP")
	p.line(strings.TrimSpace(flagNames(f)))
	p.line(flagUsage(f))
}
