"""The documentation: it builds strictly, works offline, and agrees with the code."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest
import typer
from support.browser import SIZES, Watched, chromium
from support.command import gossamer
from support.listing import names_in
from support.terminal import ANSI, in_a_terminal

import gossamer as gs
from gossamer._core.registry import PARTS
from gossamer.cli.app import app
from gossamer.study import spec
from gossamer.study.spec.sections import SECTIONS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    str(page.relative_to(ROOT)): page.read_text()
    for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
}
# A code block: the package to hide, the language, the file name, the text.
BLOCK = re.compile(
    r'^(?:<!-- without (\w+) -->\n)?```([\w-]+)(?: title="([^"]*)")?\n(.*?)^```$', re.M | re.S
)


def tool(name: str) -> ModuleType:
    """Import a script of docs/, which is not a package."""
    found = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


# -- the built site --


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    built = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder


class _Addresses(HTMLParser):
    """The resources, links and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attributes}
        self.places.add(given.get("id", ""))
        if tag == "a":
            self.links.append(given.get("href", ""))
        elif tag == "link":
            self.fetched.append(given["href"])
        for key in ("src", "srcset", "poster", "data"):
            if key in given and tag != "a":
                self.fetched.append(given[key])
        self.fetched += re.findall(r"url\(([^)]*)\)", given.get("style", ""))


@pytest.mark.slow
def test_the_site_has_no_external_resources_or_links(site: Path) -> None:
    pages: dict[Path, _Addresses] = {}
    for page in site.rglob("*.html"):
        pages[page] = _Addresses()
        pages[page].feed(page.read_text())
    assert len(pages) > 50
    for page, found in pages.items():
        if page.name == "404.html":  # only a server shows it
            continue
        for address in found.fetched:
            assert not re.match(r"(https?:)?//", address), f"{page} fetches {address}"
            assert address.startswith("data:") or (page.parent / unquote(address)).is_file(), (
                f"{page} lacks {address}"
            )
        for link in found.links:
            path, _, place = link.partition("#")
            if ":" in path:
                assert link == "https://docs.ray.io", f"{page} leads to {link}"
                continue
            target = (page.parent / unquote(path)).resolve() if path else page
            assert target in pages or target.is_file(), f"{page} leads to {link}"
            assert not place or target not in pages or unquote(place) in pages[target].places, (
                f"{page} leads to {link}"
            )
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text()), style


@pytest.mark.slow
def test_the_site_has_every_page_public_name_and_command(site: Path) -> None:
    for name in PAGES.keys() - {"README.md"}:
        assert (site / name).relative_to(site).is_relative_to("docs")
        assert (site / Path(name).relative_to("docs")).with_suffix(".html").is_file(), name
    for name in ("papers/wpm/index.html", "papers/field/index.html", "changelog.html"):
        assert (site / name).is_file(), name
    reference = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    names = set()
    for place in re.findall(r'id="(gossamer\.[\w.]+)"', reference):
        names.add(place.rpartition(".")[2])
    assert set(gs.__all__) - names == set()
    headings = set(re.findall(r'<h2 id="([\w-]+)"', (site / "commands.html").read_text()))
    assert {"-".join(path.split()) for path in COMMANDS} <= headings


@pytest.mark.slow
def test_no_raw_source_is_left_in_a_page(site: Path) -> None:
    """No link to a missing file, no example shown as a quotation, no unfilled list."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r'href="[^"]*\.(py|md|csv|toml|json|cff)["#]', text), page
        assert "<!-- api" not in text, page
        assert "<!-- commands" not in text, page
        assert not re.search(r"<blockquote>\s*<blockquote>", text), page


@pytest.mark.slow
def test_from_its_folder_in_a_browser(site: Path) -> None:
    """Search works on file://; pages fit a phone; no external requests; no console errors."""
    with chromium() as browser:
        for size, scheme in (("desktop", "light"), ("phone", "dark")):
            context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, offline=True)
            watched = Watched(context.new_page(), (site.as_uri(),))
            page = watched.page
            wrong = watched.wrong
            page.on(
                "request",
                lambda asked, wrong=wrong: (
                    wrong.append(asked.url) if asked.url.startswith("http") else None
                ),
            )
            page.on(
                "console",
                lambda message, wrong=wrong: (
                    wrong.append(message.text) if message.type == "error" else None
                ),
            )
            page.on("pageerror", lambda error, wrong=wrong: wrong.append(str(error)))
            for name in (
                "quickstart",
                "concepts",
                "networks",
                "spec",
                "methods/index",
                "notebook",
                "papers/wpm/index",
                "api/methods",
                "index",
            ):
                page.goto((site / f"{name}.html").as_uri())
                watched.check_fits()
                assert (
                    page.evaluate(
                        "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
                    )
                    == 0
                )
            if size == "phone":
                page.locator("label.md-header__button[for=__search]").click()
            page.locator("input.md-search__input").press_sequentially("gilbert")
            page.wait_for_selector(".md-search-result__item")
            assert "Networks" in page.locator(".md-search-result__list").inner_text()
            watched.check()
            context.close()


# -- statements of the pages --


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        path = f"{before} {name}".strip()
        yield from commands(command, path) if hasattr(command, "commands") else [(path, command)]


COMMANDS = dict(commands(typer.main.get_command(app)))


def commands_of(page: str) -> list[str]:
    """Return the commands that a page shows in blocks and in text."""
    blocks = re.findall(r"^(?:    |\$ )(gossamer .*)$", page, re.M)
    found = re.findall(r"(?<!`)`(gossamer [^`\n]+)`(?!`)", page)
    for line in blocks:
        found.append(re.split(r"\s{3,}|  #", line)[0])
    return found


@pytest.mark.parametrize(
    "name", [name for name in PAGES if name != "docs/troubleshooting.md"]
)  # which has unknown ones to show
def test_every_command_of_a_page_is_known(name: str) -> None:
    for line in commands_of(PAGES[name]):
        words = shlex.split(line)[1:]
        if words[0].startswith("-") or words[0].isupper():
            continue  # gossamer --help, gossamer COMMAND --help
        command = COMMANDS.get(" ".join(words[:2])) or COMMANDS.get(words[0])
        known = ["--help", "-h"]
        if command is None:  # a group of commands may be named by itself
            assert f"gossamer {words[0]}" == line
        else:
            for parameter in command.params:
                known += [*parameter.opts, *parameter.secondary_opts]
        for word in words:
            assert not word.startswith("-") or word.partition("=")[0] in known, line


def test_tables_are_made_from_the_code() -> None:
    blocks = tool("blocks")
    for name, text in PAGES.items():
        assert blocks.filled(text) == text, f"stale: python docs/blocks.py {name}"
    shown = re.findall(r"<!-- (?:kinds|keys) (\w+) -->", PAGES["docs/spec.md"])
    assert set(shown) == {"study", "method", *spec.KINDS, *SECTIONS}


def test_every_network_has_a_section_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python and TOML, with a picture."""
    monkeypatch.chdir(tmp_path)
    pictures = tool("pictures")
    shown = {}
    for section in re.split(r"^##+ ", PAGES["docs/networks.md"], flags=re.M):
        for (name, code, files), table in zip(
            pictures.examples(f"\n## {section}"),
            re.findall(r"^```toml\n(.*?)^```", section, re.M | re.S),
            strict=True,
        ):
            network = pictures.made(code, files)
            (study,) = spec.studies(spec.parse(table))
            for t in range(3):
                assert network.links(t) == study.network.links(t), section
            assert (DOCS / "pictures" / name).is_file()
            shown[section.splitlines()[0]] = name
    assert shown == {
        kind: f"network-{kind}.svg" for kind in (*spec.KINDS["network"], *spec.KINDS["faults"])
    }


@pytest.mark.slow
def test_pictures_are_made_by_their_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every picture has its script; those without training are compared with a new drawing."""
    pictures = tool("pictures")
    shown = set()
    for text in PAGES.values():
        for name in re.findall(r"\]\((?:docs/|\.\./)?pictures/([^)]+)\)", text):
            shown.add(name)
    there = set(names_in(DOCS / "pictures"))
    assert shown == there
    monkeypatch.setattr(pictures, "DOCS", tmp_path)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "networks.md").write_text(PAGES["docs/networks.md"])
    assert (
        pictures.main(["links", "mixing", "mirror", "dual", "networks", "architecture", "methods"])
        == 0
    )
    made = set(names_in(tmp_path / "pictures"))
    assert made == there - {
        "readme.png",
        "demo.png",
        "report.png",
        "page-answer.png",
        "page-curves.png",
        "page-network.png",
        "page-phone.png",
        "page-search.png",
        "scale.svg",
        "peers.svg",
        "trace-gpx.png",
        "trace-hospital.png",
        "trace-primary-school.png",
        "trace-high-school.png",
    }  # these need training or data, or are measured
    for (
        name
    ) in made:  # but for names and numbers, whose last digits another processor may round otherwise
        one = (tmp_path / "pictures" / name).read_text()
        other = (DOCS / "pictures" / name).read_text()
        bare = []
        for text in (one, other):
            bare.append(re.sub(r"[a-z]?[0-9a-f]{10}|-?\d+(\.\d+)?", "", text))
        assert bare[0] == bare[1], f"stale: python docs/pictures.py makes another {name}"


# -- code of the pages --

QUICK = {  # a shorter way to the same, so that the tests do not take as long as a reader
    "seeds=5": "seeds=1",
    "rounds=200": "rounds=60",
    '0.8").format(0)': '0.8")',
    "gossamer compare\n": "gossamer compare --set rounds=20\n",
    "gossamer compare hospital.toml --seeds 3": "gossamer compare hospital.toml --set rounds=20",
    "gossamer tune hospital.toml --budget 80": "gossamer tune hospital.toml --budget 36 "
    "--methods d-psgd --set rounds=20 --workers 1",
    "run Contacts_Hospital.csv\nC": "run Contacts_Hospital.csv --set rounds=20\nC",
    "gossamer compare mine.toml --seeds 5": "gossamer compare mine.toml --seeds 2 --set rounds=10",
    "quasi-global,tracking,wpm": "quasi-global,tracking,wpm --workers 1",
}


def run_page(name: str) -> None:
    """Run everything that a page shows, from top to bottom, and compare the output."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for missing, language, title, text in BLOCK.findall(PAGES[name]):
        if title:
            Path(title).write_text(text)
        if language == "python":
            for long, short in QUICK.items():
                text = text.replace(long, short)
            with redirect_stdout(io.StringIO()) as out:
                exec(compile(text, name, "exec", dont_inherit=True), names)
            printed = out.getvalue()
        elif language == "output":
            assert without_figures(printed) == without_figures(text)
        elif language in ("console", "shell-session"):
            for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
                run_command(part, missing, exact=language == "console")


def without_figures(text: str) -> list[list[str]]:
    """Return the words of each line; the last digits of figures depend on the processor."""
    lines = []
    for line in re.sub(r"[-+]?\d+\.\d+", "0.0", text).splitlines():
        lines.append(line.split())
    return lines


def run_command(part: str, missing: str, exact: bool) -> None:
    """Run a command and compare its output; of a table only the words."""
    for long, short in QUICK.items():
        part = part.replace(long, short)
    line, _, shown = part.partition("\n")
    with pytest.MonkeyPatch.context() as patch:
        if missing:  # as if it were not installed
            patch.setitem(sys.modules, missing, None)
        result = gossamer(*shlex.split(line)[1:])
    refused = shown.startswith("gossamer: ")
    assert (result.code != 0) == refused, result.err
    if refused:
        # Files are shown by the names that they have in the reader's folder; progress is not shown.
        said = []
        for text in result.err.splitlines():
            if text.startswith("gossamer: "):
                said.append(text)
        assert "\n".join(said).replace(f"{Path.cwd()}/", "") == shown.strip(), line
    elif shown.strip() and exact:
        assert result.out.strip() == shown.strip()
    else:
        words = set()
        for word in re.findall(r"[A-Za-z][\w/.-]*", shown):
            if not word[-1].isdigit():
                words.add(word)
        assert words - set(re.findall(r"[A-Za-z][\w/.-]*", result.out)) == set(), line


@pytest.fixture
def _reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder without data sets; methods that a page registers are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOSSAMER_DATA", "data")
    monkeypatch.setenv("COLUMNS", "120")
    known = set(gs.METHODS)
    yield
    for name in set(gs.METHODS) - known:
        del gs.METHODS[name]
        del PARTS["algorithm"][name]


@pytest.mark.slow
@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize(
    "name",
    [
        "quickstart",
        "tutorial",
        "looking",
        "your-own/data",
        "your-own/model",
        "your-own/hugging-face",
        "your-own/metrics",
        "your-own/method",
        "your-own/network",
        "your-own/code",
    ],
)
def test_what_a_page_shows_runs(name: str) -> None:
    run_page(f"docs/{name}.md")


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.usefixtures("_reader")
def test_the_commands_on_a_contact_log_run(outside: Path) -> None:
    Path("Contacts_Hospital.csv").symlink_to(outside / "traces" / "Contacts_Hospital.csv")
    run_page("docs/contact-log.md")
    assert Path("network.png").is_file()
    assert Path("runs/tune-hospital/winner.toml").is_file()


@pytest.mark.usefixtures("_reader")
def test_troubleshooting_quotes_what_the_command_says() -> None:
    assert gossamer("new", "fleet.toml").code == 0
    run_page("docs/troubleshooting.md")


def test_the_readme_shows_the_quickstarts_ten_lines() -> None:
    block = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
    ten = block.findall(PAGES["README.md"])[0]
    quick = block.findall(PAGES["docs/quickstart.md"])[0]
    assert ten == quick
    assert len([line for line in ten.splitlines() if line.strip()]) <= 10


@pytest.mark.slow
def test_the_readme_shows_the_table_of_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns and the widths; the values are those of the quickstart."""
    monkeypatch.chdir(tmp_path)
    (table,) = re.findall(r"^```text\n(.*?)^```", PAGES["README.md"], re.M | re.S)
    printed = ANSI.sub("", in_a_terminal("compare", "-q")).replace("\r", "")
    shapes = [re.sub(r"\d", "0", line.rstrip()) for line in printed.splitlines()]
    for line in table.splitlines():
        assert re.sub(r"\d", "0", line) in shapes
    quickstart = PAGES["docs/quickstart.md"]
    for line in table.splitlines()[3:]:
        accuracy = re.match(r"  [\w ]+=?\d* +[\d.]+ +[-\d.]*", line)
        assert accuracy is not None
        assert accuracy[0].rstrip() in quickstart


def test_the_spec_of_the_examples_is_a_study() -> None:
    studies = spec.studies(spec.read(ROOT / "examples" / "robots.toml"))
    assert (
        json.dumps([study.algorithm.label for study in studies])
        == '["WPM quasi-global", "Tracking", "D-PSGD", "SwarmSGD"]'
    )
