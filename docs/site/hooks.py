"""Pages of the repository as pages of the site: mkdocs calls these functions."""
import posixpath
import re

REPOSITORY = "https://github.com/plaid-ir/plaid/blob/main/"
LINK = re.compile(r"\]\(([^()\s]+)\)")
LIST = re.compile(r"(?m)^(?![ \t]*(?:[-*+]|\d+\.) |[ \t]*$|#|\||```)(.*\n)(?=(?:[-*+]|\d+\.) )")


def on_page_markdown(markdown, page, config, files):
    """Links to files that are no pages lead to the repository, and lists are what code hosts see as lists."""
    folder = posixpath.dirname(page.file.src_uri)

    def link(match):
        target, _, anchor = match.group(1).partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match.group(0)
        path = posixpath.normpath(posixpath.join(folder, target))
        if files.get_file_from_path(path):
            return match.group(0)
        return f"]({REPOSITORY}{path}{'#' + anchor if anchor else ''})"

    parts = re.split(r"(?ms)(^```.*?^```$)", markdown)
    for i in range(0, len(parts), 2):
        parts[i] = LIST.sub(r"\1\n", LINK.sub(link, parts[i]))
    for i in range(1, len(parts), 2):  # what has no language is a result, or a picture of characters
        parts[i] = re.sub(r"^```\n", "``` { .text .kept }\n", parts[i])
    return "".join(parts)
