"""The page in a browser: it works by keys, fits the screen, and its figures can be read on a phone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


def test_in_a_browser(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.get(page.as_uri())
    assert browser.get_log("browser") == []
    assert browser.title == "warpcert report"
    widths = browser.execute_script("return [...document.images].map(i => i.complete ? i.naturalWidth : 0)")
    assert len(widths) > 10 and min(widths) > 0
    count = lambda css: len(browser.find_elements(By.CSS_SELECTOR, css))  # noqa: E731
    assert count("table") >= 4 and count("figure.chart svg") >= 4 and count(".picture img") == 1
    assert count(".card") == 3 + 1 + 3 + 3

    first, second = browser.find_elements(By.CSS_SELECTOR, "#run-2 .card")[:2]
    inside = first.find_element(By.CLASS_NAME, "sentence")
    assert not inside.is_displayed()
    first.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert inside.is_displayed() and "under every rotation within" in inside.text
    inside_images = first.find_elements(By.TAG_NAME, "img")
    assert inside_images and all(i.size["width"] > 20 for i in first.find_elements(By.CSS_SELECTOR, ".frames img"))
    first.find_element(By.TAG_NAME, "summary").send_keys(Keys.ESCAPE)
    assert not inside.is_displayed()
    first.find_element(By.TAG_NAME, "summary").send_keys(Keys.ARROW_RIGHT)
    assert browser.switch_to.active_element == second.find_element(By.TAG_NAME, "summary")


def test_filters_in_a_browser(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.get(page.as_uri())
    gallery = browser.find_element(By.CSS_SELECTOR, "#run-2 .gallery")
    visible = lambda: [c for c in gallery.find_elements(By.CLASS_NAME, "card") if c.is_displayed()]  # noqa: E731
    everything = len(visible())
    search = gallery.find_element(By.TAG_NAME, "input")
    search.send_keys("2")
    found = visible()
    assert 0 < len(found) < everything
    assert all("2" in c.get_attribute("data-search").split() for c in found)
    search.send_keys("zzz")
    assert visible() == [] and gallery.find_element(By.CLASS_NAME, "empty").is_displayed()
    search.clear()
    search.send_keys(" ")
    button = gallery.find_elements(By.CSS_SELECTOR, "button[data-status]")[-1]
    button.send_keys(Keys.ENTER)
    status = button.get_attribute("data-status")
    assert visible() and all(c.get_attribute("data-status") == status for c in visible())
    assert button.get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen_in_both_schemes(browser: Any, page: Path, width: int, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    # letters of the plots stay readable, and plots stay inside their frames
    told = "return [...document.querySelectorAll('.plot')].map(p => [p.getBoundingClientRect().width / 360 * 12.5, "
    plots = browser.execute_script(
        told + "p.getBoundingClientRect().right, p.parentElement.getBoundingClientRect().right])"
    )
    assert len(plots) >= 5 and all(10 <= letters <= 16.5 and right <= frame for letters, right, frame in plots)
    alone = browser.execute_script("return document.querySelector('#run-3 .cards').getBoundingClientRect().width")
    card = browser.execute_script("return document.querySelector('#run-3 .card').getBoundingClientRect().width")
    assert card > 0.9 * alone, "a single card fills its row"
    claims = browser.execute_script(
        "return [...document.querySelectorAll('.claim')].map(c => c.getBoundingClientRect().right)"
    )
    assert max(claims) == pytest.approx(claims[-1], abs=1), "the last row of claims is full"
    colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", colour)[:3])) / 3
    assert (brightness > 128) == (scheme == "light")
