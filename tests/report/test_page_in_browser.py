"""The page in a browser without a head, from a folder, without a network: opened, used, looked at."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import example_run
import pytest
from golden import LINKS

from gradbot.model import Report
from gradbot.report import compare, html

pytestmark = pytest.mark.slow
webdriver: Any = pytest.importorskip("selenium.webdriver", reason="needs selenium")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("needs chromium and its driver (Debian: chromium, chromium-driver)", allow_module_level=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield made
    made.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    head = example_run.head()
    path = tmp_path_factory.mktemp("page") / "report.html"
    changes = compare.compare(head, example_run.base())
    path.write_text(html.render(head, changes, links=LINKS, sources=example_run.SOURCES), encoding="utf-8")
    return path.as_uri()


def opened(browser: Any, address: str) -> Any:
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(address)
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    return browser


def run(browser: Any, script: str) -> Any:
    return browser.execute_script(script)


def settled(browser: Any, script: str) -> None:
    """Run a script, then wait until the list has followed."""
    browser.execute_async_script(script + "; const done = arguments[arguments.length - 1]; setTimeout(done, 250)")


def shoot(browser: Any, name: str) -> None:
    folder = os.environ.get("GRADBOT_TEST_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(str(Path(folder) / f"{name}.png"))


def test_it_opens_without_an_error_or_a_request(browser: Any, page: str) -> None:
    opened(browser, page)
    run(browser, "document.querySelector('.case .row').click()")
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
    assert asked == [page]
    shoot(browser, "overview")


def test_nothing_more_is_offered_where_all_cases_are_listed(browser: Any, page: str) -> None:
    opened(browser, page)
    assert run(browser, "return getComputedStyle(document.getElementById('more')).display") == "none"


def test_filters_narrow_the_list_and_live_in_the_address(browser: Any, page: str) -> None:
    opened(browser, page)
    total = run(browser, "return document.querySelectorAll('.case').length")
    settled(
        browser, "const s = document.getElementById('class'); s.value = 'new'; s.dispatchEvent(new Event('change'))"
    )
    shown = run(browser, "return document.querySelectorAll('.case').length")
    assert 0 < shown < total
    assert f"{shown} of {total} cases" in run(browser, "return document.getElementById('found').textContent")
    assert "class=new" in browser.current_url
    settled(browser, "const q = document.getElementById('q'); q.value = 'sigsegv'; q.dispatchEvent(new Event('input'))")
    assert run(browser, "return [...document.querySelectorAll('.who')].map((e) => e.firstChild.data)") == [
        "kernels.attn:FlashAttention"
    ]
    run(browser, "document.getElementById('reset').click()")
    assert run(browser, "return document.querySelectorAll('.case').length") == total


def test_sorting_by_time_puts_the_slowest_first(browser: Any, page: str) -> None:
    opened(browser, page + "#sort=seconds")
    assert "BlockSparse" in run(browser, "return document.querySelector('.case .who').textContent")


def test_a_deep_link_opens_its_case_with_pictures_source_and_command(browser: Any, page: str) -> None:
    opened(browser, page + "#case=kernels.softcap%3ASoftCap%5Bsoftcap-64x128%5Dcpu%3Afloat64")
    detail = "document.querySelector('.case.open .detail')"
    assert run(browser, f"return {detail}.querySelectorAll('.map > canvas').length") == 3
    assert run(browser, f"return {detail}.querySelectorAll('svg').length") >= 3
    assert "0.5 * grad_output" in run(browser, f"return {detail}.querySelector('.source').textContent")
    assert run(browser, f"return {detail}.querySelectorAll('.source .blamed').length") == 6
    assert run(browser, f"return {detail}.querySelector('.again pre').textContent").startswith("gradbot check ")
    run(browser, f"{detail}.querySelector('.pictures').scrollIntoView()")
    shoot(browser, "case")


def test_a_heat_map_is_drawn_and_reads_its_blocks_to_the_keyboard(browser: Any, page: str) -> None:
    opened(browser, page + "#case=kernels.softcap%3ASoftCap%5Bsoftcap-64x128%5Dcpu%3Afloat64")
    canvas = "document.querySelectorAll('.map > canvas')[2]"
    pixel = f"return [...{canvas}.getContext('2d').getImageData(arguments[0], arguments[1], 1, 1).data]"
    on, off = browser.execute_script(pixel, 20, 20), browser.execute_script(pixel, 20, 40)
    assert on != off
    assert on[2] > on[0]  # negative values are blue
    press = f"{canvas}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'ArrowRight', cancelable: true}}))"
    run(browser, press)
    said = run(browser, "return document.getElementById('live').textContent")
    assert said.startswith("input 0..127, output 128..255: below ")
    assert "Arrow keys" in run(browser, f"return {canvas}.getAttribute('aria-label')")


def test_steps_spread_and_error_bars_are_drawn(browser: Any, page: str) -> None:
    for case, title in (
        ("kernels.act%3AHardGate%5Bgate-zeros%5Dcpu%3Afloat64", "Derivative by step size"),
        ("kernels.mix%3AScatterMix%5Bmix-1024%5Dcuda%3A0%3Afloat32", "Difference by repeat"),
        ("kernels.act%3ASwishHalf%5Bswish-4096%5Dcuda%3A0%3Afloat16", "Entries with error bars"),
    ):
        opened(browser, f"{page}#case={case}")
        titles = run(
            browser, "return [...document.querySelectorAll('.case.open figcaption b')].map((e) => e.textContent)"
        )
        assert title in titles
        labels = run(
            browser, "return [...document.querySelectorAll('.case.open svg')].map((e) => e.getAttribute('aria-label'))"
        )
        assert all(labels)
        assert "NaN" not in run(browser, "return document.querySelector('.case.open .pictures').innerHTML")
        shoot(browser, title.replace(" ", "-").lower())


def test_the_keyboard_reaches_everything(browser: Any, page: str) -> None:
    opened(browser, page)
    run(browser, "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
    assert run(browser, "return document.activeElement.id") == "q"
    run(browser, "document.querySelector('.row').focus()")
    active = browser.switch_to.active_element
    active.send_keys("\ue015")  # arrow down
    assert run(browser, "return [...document.querySelectorAll('.row')].indexOf(document.activeElement)") == 1
    browser.switch_to.active_element.send_keys("\ue007")  # enter
    assert run(browser, "return document.activeElement.getAttribute('aria-expanded')") == "true"
    browser.switch_to.active_element.send_keys("\ue00c")  # escape
    assert run(browser, "return document.activeElement.getAttribute('aria-expanded')") == "false"


NAMELESS = """
    const used = 'button, a, select, input, canvas[tabindex], svg, [role=region]';
    const named = (e) => e.textContent.trim() || e.getAttribute('aria-label') || e.closest('label');
    return [...document.querySelectorAll(used)].filter((e) => !named(e)).map((e) => e.outerHTML);
"""
CONTRASTS = """
    const channel = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    const light = (colour) => {
      const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(Number).map(channel);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const paper = getComputedStyle(document.body).backgroundColor;
    const ratio = (selector) => {
      const ink = getComputedStyle(document.querySelector(selector)).color;
      const [a, b] = [light(ink), light(paper)].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05);
    };
    return [paper, ratio('body'), ratio('.verdict'), ratio('.meta'), ratio('.meta a')];
"""


def test_everything_that_can_be_used_has_a_name(browser: Any, page: str) -> None:
    opened(browser, page)
    run(browser, "document.querySelector('.row').click()")
    assert run(browser, NAMELESS) == []


def test_light_and_dark_differ_and_stay_readable(browser: Any, page: str) -> None:
    opened(browser, page)
    seen = [run(browser, CONTRASTS)]
    run(browser, "document.getElementById('theme').click()")
    seen.append(run(browser, CONTRASTS))
    shoot(browser, "dark")
    assert seen[0][0] != seen[1][0]
    assert all(ratio >= 4.5 for _, *ratios in seen for ratio in ratios)


def test_a_click_on_a_target_of_the_table_shows_its_cases(browser: Any, page: str) -> None:
    opened(browser, page)
    run(browser, "document.querySelector('[data-target=\"kernels.rope:Rope\"]').click()")
    assert run(browser, "return [...document.querySelectorAll('.who')].map((e) => e.firstChild.data)") == [
        "kernels.rope:Rope"
    ]


def test_it_fits_a_phone(browser: Any, page: str) -> None:
    browser.set_window_size(500, 900)  # the narrowest that the browser gives
    try:
        opened(browser, page)
        run(browser, "document.querySelector('.row').click()")
        assert run(browser, "return document.documentElement.scrollWidth <= document.documentElement.clientWidth + 1")
        shoot(browser, "phone")
    finally:
        browser.set_window_size(1280, 900)


def test_printing_opens_what_fails(browser: Any, page: str) -> None:
    opened(browser, page)
    run(browser, "window.dispatchEvent(new Event('beforeprint'))")
    assert run(browser, "return document.querySelectorAll('.case.open').length") >= 8


def test_thousands_of_cases_are_listed_in_pieces(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "big.html"
    path.write_text(html.render(many(2_000)), encoding="utf-8")
    opened(browser, path.as_uri())
    assert run(browser, "return document.getElementById('found').textContent") == "2000 cases"
    assert run(browser, "return document.querySelectorAll('.case').length") < 400
    assert run(browser, "return document.querySelectorAll('#matrix tr').length") == 100
    run(browser, "document.getElementById('more-targets').click()")
    assert run(browser, "return document.querySelectorAll('#matrix tr').length") == 250
    last = "kernels.rope:Rope1999[rope-32x64]cpu:float64".replace(":", "%3A").replace("[", "%5B").replace("]", "%5D")
    opened(browser, f"{path.as_uri()}#case={last}")
    assert "Rope1999" in run(browser, "return document.querySelector('.case.open .who').textContent")
    assert browser.get_log("browser") == []


def many(number: int) -> Report:
    head = example_run.head()
    rope = next(each for each in head.results if each.case.name == "rope-32x64")
    cases = [
        replace(rope.case, target=f"{rope.case.target}{i}", id=f"{rope.case.target}{i}[rope-32x64]cpu:float64")
        for i in range(number)
    ]
    return replace(head, results=tuple(replace(rope, case=case) for case in cases))
