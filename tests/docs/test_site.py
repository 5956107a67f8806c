"""The documentation's site: what fails its build, and what a browser sees on a phone and on a desktop."""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("zensical")  # needs Python 3.11
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import build_site  # noqa: E402

# Each test has the site built, or a browser.
pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium")
PAGES = ["", "reference/rules/RK101/", "reference/codes/", "reference/cli/"]
PHONE, DESKTOP = 390, 1280  # pixels


@pytest.fixture(autouse=True)
def no_leaks() -> None:
    """Instead of that of all tests: a browser starts processes when it likes, and they end with it."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site: a broken link, a missing anchor or a page that is in no navigation fails this."""
    folder = tmp_path_factory.mktemp("site")
    build_site.build(folder)
    return folder


def project(folder: Path, page: str = "", navigation: str = '"index.md", "more/*.md"') -> Path:
    """A site of three pages, of which the first ends with ``page``."""
    patterns = "".join(f"{entry},\n" for entry in navigation.split(", "))
    (folder / "zensical.toml").write_text(
        f'[project]\nsite_name = "s"\nsite_description = "d"\nsite_dir = "site"\nnav = [\n{patterns}]\n'
        "[project.theme]\nfont = false\n"
    )
    (folder / "docs" / "more").mkdir(parents=True)
    (folder / "docs" / "index.md").write_text(
        f"# First\n\nThe first page of all pages of this site. {page}\n"
    )
    (folder / "docs" / "more" / "a.md").write_text("# `A`\n\nShort. With *more* in [a link](b.md#below).\n")
    (folder / "docs" / "more" / "b.md").write_text(
        "# B\n\n```bash\nls\n```\n\n## Below\n\nWhat is below it.\n"
    )
    return folder


def test_a_link_that_leaves_the_documents_leads_to_the_repository(tmp_path):
    root = project(tmp_path, "[own](../zensical.toml), [b](more/b.md#below)")
    build_site.build(tmp_path / "out", root, {})
    assert (
        'href="https://github.com/rankup/rankup/blob/main/zensical.toml"'
        in (tmp_path / "out" / "index.html").read_text()
    )


def test_llms_txt_lists_the_markdown_of_each_page_with_its_first_sentence(tmp_path):
    build_site.build(tmp_path / "out", project(tmp_path), {})
    assert (tmp_path / "out" / "llms.txt").read_text().splitlines() == [
        "# s", "", "> d",
        "- [First](index.md): The first page of all pages of this site.",
        "- [A](more/a.md): Short. With more in a link.",
        "- [B](more/b.md): What is below it.",
    ]  # fmt: skip
    assert (tmp_path / "out" / "more" / "a.md").exists()


@pytest.mark.parametrize(
    ("page", "navigation", "said"),
    [
        ("[gone](more/c.md)", '"index.md", "more/*.md"', "page does not exist"),
        ("[gone](more/b.md#above)", '"index.md", "more/*.md"', "anchor does not exist"),
        ("[gone](../src/c.py)", '"index.md", "more/*.md"', "docs/index.md: ../src/c.py does not exist"),
        ("", '"index.md", "more/a.md"', "more/b.md is not in the navigation"),
        ("", '"index.md", "c.md", "more/*.md"', "c.md is in the navigation, and does not exist"),
    ],
    ids=[
        "a page",
        "an anchor",
        "a file of the repository",
        "not in the navigation",
        "only in the navigation",
    ],
)
def test_what_is_broken_fails_the_build_and_is_named(tmp_path, page, navigation, said):
    with pytest.raises(SystemExit, match=said):
        build_site.build(tmp_path / "out", project(tmp_path, page, navigation), {})


def test_every_page_is_built_and_listed(site):
    listed = (site / "llms.txt").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs")
        folder = name.parent if name.stem in ("index", "README") else name.with_suffix("")
        assert (site / folder / "index.html").exists(), name
        assert f"]({name.as_posix()}): " in listed, name


def test_no_page_loads_anything_from_another_host(site):
    loads = re.compile(
        r"""(?:src|srcset)=["']?(?:https?:)?//|<link[^>]*href=["']?(?:https?:)?//|@import|url\(["']?http"""
    )
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert [path for path in files if loads.search(path.read_text())] == []


@pytest.fixture(scope="module")
def address(site):
    """Of a server of the site on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing: a test's output is for what went wrong."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def tab(browser, address):
    """A page of the browser. In the end nothing may have been logged, and nothing asked of another host."""
    seen = []
    context = browser.new_context()
    context.set_default_timeout(200_000)  # milliseconds, on a busy machine
    page = context.new_page()
    page.on("console", lambda message: seen.append(message.text))
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on(
        "request",
        lambda one: None if one.url.startswith((address, "data:", "blob:")) else seen.append(one.url),
    )
    yield page
    context.close()
    assert seen == []


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_pages_fit_their_screen_and_ask_no_other_host(tab, address, width):
    tab.set_viewport_size({"width": width, "height": 800})
    for name in PAGES:
        assert tab.goto(address + name, wait_until="load").ok
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, name
        main = tab.locator("article.md-content__inner").bounding_box()
        assert main["x"] >= 0 and main["x"] + main["width"] <= width, name


def test_the_search_finds_a_rule_by_its_name(tab, address):
    tab.set_viewport_size({"width": DESKTOP, "height": 800})
    tab.goto(address)
    tab.get_by_role("button", name="Search").first.click()
    tab.get_by_role("combobox").fill("early-rank-expansion")
    first = tab.get_by_role("option").first
    first.wait_for()
    assert first.text_content().startswith("RK102")
