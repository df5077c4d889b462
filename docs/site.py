"""What the site adds to Sphinx: pages from other folders of the repository, links to its files, equations as MathML."""

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent
INCLUDED = {
    "results/study": "studies/study.md",
    "results/comparison": "studies/comparison.md",
    "results/tables": "studies/results/README.md",
    "contributing": "CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
    "security": "SECURITY.md",
}
"""Page of the site → the file whose text it shows. On its own, the page has a link to the file."""
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FOLDER = re.compile(r"\[([^\[\]]+)\]\(([^)\s#:]+)\)")
ANCHOR = re.compile(r'<a id="([^"]+)"></a>\n')
PAGE_OF = {(ROOT / source).resolve(): (HERE / f"{page}.md").resolve() for page, source in INCLUDED.items()}


def read_page(app: Sphinx, page: str, content: list[str]) -> None:
    """Replace the text of an included page, and let links lead to pages of the site, or else to copies of files."""
    file = ROOT / INCLUDED[page] if page in INCLUDED else HERE / f"{page}.md"
    text = file.read_text(encoding="utf-8") if page in INCLUDED else content[0]
    if page in INCLUDED:
        app.env.note_dependency(str(file), docname=page)  # or a later build would keep the old text

    def link(match: re.Match[str]) -> str:
        target = (file.parent / match[2]).resolve()
        if "://" in match[2] or not target.exists():
            return match[0]
        shown = os.path.relpath(PAGE_OF.get(target, target), (HERE / f"{page}.md").parent)
        return match[1] + Path(shown).as_posix() + match[3]

    def without_folder(match: re.Match[str]) -> str:
        target = (file.parent / match[2]).resolve()
        page_of = target.is_relative_to(ROOT) and not target.is_dir()  # a folder has no page
        return match[0] if page_of or not target.exists() else match[1]

    content[0] = ANCHOR.sub(r"(\1)=\n", LINK.sub(link, FOLDER.sub(without_folder, text)))


SECTION = re.compile(r"(?:Args|Options|Attributes|Returns|Yields|Raises|Example|Examples|References?|Note):")


def mark_equations(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Make literal blocks of indented equations, which would run into one paragraph."""
    marked: list[str] = []
    section = block = False
    for line in lines:
        if line and not line.startswith(" "):
            section, block = bool(SECTION.fullmatch(line)), False
        elif line.strip() and not section and not block and marked and not marked[-1]:
            marked += ["::", ""]
            block = True
        marked.append(line)
    lines[:] = marked


def escape_docstring(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape |P| and *S in docstrings, which reStructuredText takes for substitutions and emphasis."""
    literal = False
    for number, line in enumerate(lines):
        literal = (literal and (not line or line.startswith(" "))) or line == "::"
        if not literal and not line.lstrip().startswith((">>>", "...")):
            pieces = line.split("``")
            pieces[::2] = [re.sub(r"(?<![\\*])(\*(?!\*)|\|)", r"\\\1", piece) for piece in pieces[::2]]
            lines[number] = "``".join(pieces)


def write_dashes(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Write the dash between a parameter and its description, which Sphinx gives as two hyphens."""
    for node in list(doctree.findall(nodes.Text)):
        if node.astext() == " -- ":
            node.parent.replace(node, nodes.Text(" – "))


def write_equation(translator: Any, node: Any) -> None:
    """Write an equation as MathML, which browsers draw without scripts or fonts."""
    block = isinstance(node, nodes.math_block)
    markup = tex2mathml(node.astext().strip(), as_block=block)
    translator.body.append(f'<div class="math">{markup}</div>' if block else markup)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the parts of this extension."""
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", mark_equations, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", escape_docstring, priority=600)  # after napoleon
    app.connect("doctree-resolved", write_dashes)
    app.add_html_math_renderer("mathml", (write_equation, None), (write_equation, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
