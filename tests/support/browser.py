"""A real browser for tests: Chromium through Playwright, which reaches this machine only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.processes import DEADLINE

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser; skip the test, with the reason, if there is none."""
    sync = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install playwright"
    )
    path = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    )
    if path is None:
        pytest.skip(
            "there is no Chromium: `apt-get install chromium` brings it, or CHROMIUM names one"
        )
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """A page with its errors; `check` fails if there are any."""

    page: Any
    allowed: tuple[str, ...]
    wrong: list[str] = field(default_factory=list)

    def check(self) -> None:
        assert self.wrong == []

    def check_accessible(self) -> None:
        """Fail if axe-core finds a violation."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        assert [(v["id"], [node["html"] for node in v["nodes"]]) for v in found] == []

    def check_fits(self) -> None:
        """Fail if the page scrolls sideways."""
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


Opened = Callable[..., Watched]


def opener(browser: Any) -> Iterator[Opened]:
    """Yield `open_page(url, size, scheme)`; requests to addresses not `allowed` fail the test."""
    contexts = []

    def open_page(
        url: str,
        size: str = "desktop",
        scheme: str = "light",
        allowed: tuple[str, ...] = (),
        **options: Any,
    ) -> Watched:
        context = browser.new_context(
            viewport=SIZES[size], color_scheme=scheme, accept_downloads=True, **options
        )
        contexts.append(context)
        context.set_default_timeout(1000 * DEADLINE)
        watched = Watched(context.new_page(), (url.partition("#")[0], *allowed))

        def route(route: Any) -> None:
            address = route.request.url
            if address.startswith(watched.allowed):
                route.continue_()
            else:
                watched.wrong.append(f"asked for {address}")
                route.abort()

        context.route("**/*", route)
        watched.page.on(
            "console",
            lambda message: watched.wrong.append(f"console: {message.type} {message.text}"),
        )
        watched.page.on("pageerror", lambda error: watched.wrong.append(f"error: {error}"))
        watched.page.goto(url)
        watched.page.wait_for_selector("html[data-ready]", state="attached")
        return watched

    yield open_page
    for context in contexts:
        context.close()
