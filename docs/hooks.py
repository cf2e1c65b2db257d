"""mkdocs hooks: add pages from outside docs/, rewrite links that leave docs/, fill generated lists,
typeset formulas.

The Markdown files keep the links that work in the repository. In the site a link to a file without
a page, such as ../src/gossamer/mirror.py, is replaced by the name of the file.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import blocks  # noqa: E402
import mathematics  # noqa: E402
import notebook  # noqa: E402

from gossamer.algorithms import METHODS  # noqa: E402

# Pages from outside docs/: path in the site, path in the repository.
ROOT_PAGES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
# A code block, a link, or inline code. Links inside code are left alone.
_LINK = re.compile(
    r"^```.*?^```$"
    r"|(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)]*)?\)"
    r"|`[^`\n]*`",
    re.M | re.S,
)
_API = re.compile(r"^<!-- api (.*) -->$", re.M)


def on_config(config: Any) -> Any:
    """Add a page per registered method to the navigation."""
    for section in config["nav"]:
        for title, pages in section.items():
            if title == "Methods":
                listed = []
                for page in pages:
                    if page != "methods/index.md":
                        listed.append(page)
                methods = []
                for name, m in METHODS.items():
                    methods.append({m.label: f"methods/{name}.md"})
                section[title] = ["methods/index.md", *listed, *methods]
    return config


def repository_path(page: str) -> str:
    """Return the path in the repository of a page or picture of the site.

    >>> repository_path("spec.md"), repository_path("papers/wpm/README.md")
    ('docs/spec.md', 'papers/wpm/README.md')
    """
    if page.startswith("papers/"):
        return page
    return ROOT_PAGES.get(page, f"docs/{page}")


def site_path(path: str) -> str | None:
    """Return the path in the site of a file of the repository, or None if the site lacks it."""
    elsewhere = {there: here for here, there in ROOT_PAGES.items()}
    if path in elsewhere:
        return elsewhere[path]
    if path.startswith("papers/") and path.endswith((".md", ".png")):
        return path
    if path.startswith("docs/") and not path.endswith(".py"):
        return path.removeprefix("docs/")
    return None


def relinked(markdown: str, page: str) -> str:
    """Return the text of a page with its links rewritten for the site."""
    folder = posixpath.dirname(repository_path(page))

    def link(found: re.Match[str]) -> str:
        if found["path"] is None:
            return found[0]
        target = posixpath.normpath(posixpath.join(folder, found["path"]))
        there = site_path(target)
        if (
            (ROOT / target).is_dir()
            and (readme := f"{target}/README.md")
            and (ROOT / readme).is_file()
        ):
            there = site_path(readme)
        if there is None:
            name = found["text"].strip("`")
            if target.endswith(name):
                return f"`{name}`"
            return f"{found['text']} (`{target}`)"
        path = posixpath.relpath(there, posixpath.dirname(page) or ".")
        return f"{found['picture']}[{found['text']}]({path}{found['anchor'] or ''})"

    return _LINK.sub(link, markdown)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and pictures of the papers, the changelog and CONTRIBUTING.md."""
    papers = []
    for end in ("md", "png"):
        for path in (ROOT / "papers").rglob(f"*.{end}"):
            papers.append(path.relative_to(ROOT).as_posix())
    for here, there in [*((path, path) for path in sorted(papers)), *ROOT_PAGES.items()]:
        files.append(File.generated(config, here, abs_src_path=str(ROOT / there)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite links, typeset formulas, and fill the lists of commands and public names."""
    listed = _API.sub(lambda found: blocks.api(found[1]), markdown)
    if "<!-- commands -->" in listed:
        listed = listed.replace("<!-- commands -->", blocks.commands())
    if "<!-- notebook -->" in listed:
        cells = json.loads(notebook.NOTEBOOK.read_text(encoding="utf-8"))
        listed = listed.replace("<!-- notebook -->", notebook.markdown(cells))
    return mathematics.typeset(relinked(listed, page.file.src_uri))
