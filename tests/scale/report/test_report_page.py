"""``report.html`` in a real browser: a phone and a desktop, light and dark, by mouse and by keyboard."""

from __future__ import annotations

import itertools
import re
import shutil
from html.parser import HTMLParser

import pytest

from rankup.findings.finding import Finding, Severity
from rankup.scale.report.content import of_runs, of_study
from rankup.scale.report.figures import draw
from rankup.scale.report.write import write
from rankup.scale.results import Configuration, StudyResults
from report_inputs import NASTY, compared, measured, study, write_run

# A browser on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CHROMIUM = shutil.which("chromium")
FINDING = Finding(
    "superlinear", Severity.WARNING, "4 processes reach 118 % <b>", why="a slow baseline", fix="--threads 1"
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """name → report.html: a study, runs, and names that are markup. Only the SVG of a figure is on a page."""
    folder = tmp_path_factory.mktemp("reports")
    results = study((1, 2, 4))
    runs = [write_run(folder / "runs" / name, seed=i, steps=20, gpus=2) for i, name in enumerate("ab")]
    nasty = StudyResults(
        NASTY, "strong",
        [Configuration({NASTY: NASTY}, [measured(n, 9.0 / n, strategy=NASTY * n)]) for n in (1, 2)]
        + [Configuration({NASTY: 1}, [], {"code": NASTY, "message": NASTY, "why": NASTY, "fix": NASTY})],
        {"hostname": NASTY}, 1,
    )  # fmt: skip
    contents = {
        "study": of_study(results, folder, rows=compared(results), findings=[FINDING]),
        "runs": of_runs(runs),
        "nasty": of_study(nasty, folder, title=NASTY),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draw, "_BACKENDS", {"svg": draw._BACKENDS["svg"]})
        return {name: write(content, folder / name).page for name, content in contents.items()}


@pytest.fixture(autouse=True)
def no_leaks() -> None:
    """Instead of that of all tests: a browser starts processes when it likes, and they end with it."""


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
def opened(browser, reports):
    """A function that opens a report. In the end nothing may have been logged, and nothing asked of a network."""
    contexts, seen = [], []

    def open_page(name, width, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("dialog", lambda dialog: (seen.append("dialog"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: None if request.url.startswith(("file:", "data:")) else seen.append(request.url),
        )
        page.goto(reports[name].as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert seen == []


@pytest.mark.parametrize("name", ["study", "runs", "nasty"])
def test_the_page_fits_its_screen_and_shows_every_figure(opened, name):
    page = opened(name, 360)
    fits(page, 360, name)
    page.set_viewport_size({"width": 1280, "height": 800})
    fits(page, 1280, name)


def fits(page, width, name):
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = [svg.bounding_box() for svg in page.query_selector_all("figure svg")]
    assert boxes and all(box["width"] > 250 and box["height"] > 120 for box in boxes)
    texts = page.evaluate(
        "[...document.querySelectorAll('figure svg text')].map(t => t.getBoundingClientRect().height)"
    )
    assert min(texts) >= 9  # pixels
    outside = page.evaluate(
        """[...document.querySelectorAll('figure svg')].flatMap(svg => {
             const box = svg.getBoundingClientRect();
             return [...svg.querySelectorAll('text')].filter(t => {
               const own = t.getBoundingClientRect();
               return own.left < box.left - 2 || own.right > box.right + 2;
             }).map(t => t.textContent);
           })"""
    )
    assert name == "nasty" or outside == []


def column(page, table, index):
    rows = f"[...document.querySelectorAll('#table-{table}-body tbody tr')]"
    return page.evaluate(f"{rows}.map(row => row.cells[{index}].dataset.value)")


def test_a_table_is_sorted_by_click_and_says_so(opened):
    page = opened("study", 1280)
    button = page.locator("#table-comparison-body thead button").nth(3)
    head = page.locator("#table-comparison-body thead th").nth(3)
    button.click()
    up = [float(value) for value in column(page, "comparison", 3)]
    assert up == sorted(up) and head.get_attribute("aria-sort") == "ascending"
    button.click()
    assert [float(value) for value in column(page, "comparison", 3)] == up[::-1]
    assert head.get_attribute("aria-sort") == "descending"
    assert page.locator("#sorted").text_content() == "Sorted by Training time: descending"
    others = page.locator("#table-comparison-body thead th[aria-sort=none]")
    assert others.count() == page.locator("#table-comparison-body thead th").count() - 1


def test_everything_is_reached_by_keyboard_in_order_and_the_focus_is_seen(opened):
    page = opened("study", 1280)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "BUTTON":
            break
    assert page.evaluate("document.activeElement.matches('#table-comparison-body button')")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('th').ariaSort") == "ascending"
    page.keyboard.press("Space")
    assert column(page, "comparison", 0) == ["4 processes", "2 processes", "1 process"]


def test_dark_and_light_differ_in_page_and_figures(opened):
    colours = []
    for scheme in ("light", "dark"):
        page = opened("study", 1280, scheme)
        colours.append(
            page.evaluate(
                """[getComputedStyle(document.body).backgroundColor,
                    getComputedStyle(document.querySelector('figure svg text')).fill]"""
            )
        )
    assert colours == [["rgb(255, 255, 255)", "rgb(29, 39, 48)"], ["rgb(19, 24, 29)", "rgb(232, 237, 242)"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_aa(opened, scheme):
    page = opened("study", 1280, scheme)
    low = page.evaluate(
        r"""() => {
          const light = c => c.map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
          const rgb = text => text.match(/[\d.]+/g).slice(0, 3).map(Number);
          const ground = node => {
            for (let n = node; n; n = n.parentElement) {
              const c = getComputedStyle(n).backgroundColor;
              if (!/, 0\)$/.test(c) && c !== "transparent") return rgb(c);
            }
          };
          return [...document.querySelectorAll("h1,h2,h3,p,dt,dd,td,th,button,a,code,b,caption,span")].filter(n => {
            if (n.classList.contains("skip")) return false;
            const [a, b] = [light(rgb(getComputedStyle(n).color)), light(ground(n))].sort((x, y) => x - y);
            return (b + .05) / (a + .05) < 4.5;
          }).map(n => n.outerHTML.slice(0, 80));
        }"""
    )
    assert low == []


def test_names_with_markup_are_text(opened, reports):
    page = opened("nasty", 1280)
    assert page.locator("h1").text_content().startswith("<script>alert(1)</script> & $x_1$")
    assert page.locator("script").count() == 1
    assert page.locator("main script, main b script").count() == 0
    assert "\x1b" not in reports["nasty"].read_text()


def test_a_script_that_came_in_would_not_run(browser, reports, tmp_path):
    text = reports["study"].read_text().replace("<footer>", "<script>document.title = 'run'</script><footer>")
    (tmp_path / "report.html").write_text(text)
    page = browser.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    assert page.title() == "Scaling study of mnist-cnn --data fashion-mnist"
    page.close()


class Outline(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_the_page_has_landmarks_headings_captions_and_texts_for_figures(reports):
    outline = Outline()
    outline.feed(reports["study"].read_text())
    tags = [tag for tag, _ in outline.tags]
    assert {"header", "nav", "main", "footer"} <= set(tags) and tags.count("h1") == 1
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    assert tags.count("caption") == tags.count("table") == 3
    assert all(attrs.get("scope") in ("col", "row") for tag, attrs in outline.tags if tag == "th")
    figures = [attrs for tag, attrs in outline.tags if tag == "svg"]
    assert all(attrs["role"] == "img" and re.search(r"\d", attrs["aria-label"]) for attrs in figures)
    ids = [attrs["id"] for _, attrs in outline.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_findings_stand_beside_the_summary(reports):
    text = reports["study"].read_text()
    assert (
        '<li class="warning"><b>Warning:</b> 4 processes reach 118 % &lt;b&gt; <code>superlinear</code>'
        in text
    )
    assert text.index("superlinear") < text.index('id="figures"')
