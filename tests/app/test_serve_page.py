"""The page in a real browser: choose, turn, certify, download, draw, and an error that is shown well."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from serving import running

from warpcert.app.serve.served import open_served
from warpcert.learn import pictures, zoo
from warpcert.runs.answers import verify_file

BROWSER = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason=f"needs chromium and chromedriver (found {BROWSER}, {DRIVER}): apt-get install chromium chromium-driver",
)


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running(open_served(zoo.EMBEDDED, gamma=[10.0]), n=20_000) as (url, _):
        yield url


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,1000"):
        options.add_argument(word)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser: webdriver.Chrome, url: str) -> Iterator[webdriver.Chrome]:
    """The page, ready, with a certificate; in the end the console must be silent."""
    browser.get(url)
    wait(browser, certified)
    yield browser
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def wait(browser: webdriver.Chrome, true: object, seconds: float = 30) -> None:
    WebDriverWait(browser, seconds, 0.05).until(true)  # type: ignore[arg-type]


def said(browser: webdriver.Chrome, name: str) -> str:
    return browser.find_element(By.ID, name).text


def certified(browser: webdriver.Chrome) -> bool:
    return browser.find_element(By.ID, "save").is_enabled() and said(browser, "label") not in ("", "–")


def test_turn_certify_download(page: webdriver.Chrome, downloads: Path) -> None:
    assert said(page, "label") == "0" and said(page, "who") == "Answer of mnist-rotation-exact"  # the first sample
    assert said(page, "sentence").startswith("Proved: mnist-rotation-exact (plain classifier behind levels of 32)")
    assert "wc.load('mnist-rotation-exact').predict(x)" in said(page, "deploy")
    assert said(page, "state") == "guaranteed" and "inside the certified range, −10° … 10°" in said(page, "here")
    assert not page.find_element(By.ID, "risk").is_displayed()  # a proof has no α
    slider = page.find_element(By.ID, "gamma")
    before = page.find_element(By.ID, "dial").get_attribute("data-url")
    slider.send_keys(Keys.ARROW_LEFT * 5)  # the thumb goes left with the needle: counter-clockwise
    wait(page, lambda b: said(b, "angle") == "5°" and "5° is inside" in said(b, "here"))
    wait(page, lambda b: b.find_element(By.ID, "dial").get_attribute("data-url") != before)
    wait(page, lambda b: needle(b) < 0 and side_of_the_top(b) < -0.1)
    wait(page, lambda b: "5.5°" in said(b, "ranges") and b.find_element(By.ID, "low").get_attribute("src"))
    slider.send_keys(Keys.ARROW_LEFT * 20)
    wait(page, lambda b: "Beyond" in said(b, "beyond") and "outside the certified range" in said(b, "here"))
    assert said(page, "state") == "no guarantee"
    page.find_element(By.ID, "zero").click()
    wait(page, lambda b: said(b, "angle") == "0°")
    for button, name in (("save", "certificate"), ("save-answer", "prediction")):
        file = downloads / f"warpcert-{name}.json"
        page.find_element(By.ID, button).click()
        wait(page, lambda _, file=file: file.is_file() and file.stat().st_size)  # type: ignore[misc]
        assert verify_file(file) == [] and json.loads(file.read_text())[name]["label"] == 0


def needle(browser: webdriver.Chrome) -> float:
    return float(browser.find_element(By.CSS_SELECTOR, "#dial .needle").get_attribute("cx") or "nan")


def side_of_the_top(browser: webdriver.Chrome) -> float:
    """How far the upper half of the attacked digit lies to the right of where it lay before, in pixels."""
    moved, still = (
        pictures.decode(base64.b64decode(str(url).partition(",")[2])).image[0, :14]
        for url in (
            browser.find_element(By.ID, "dial").get_attribute("data-url"),
            browser.find_element(By.ID, "truth").get_attribute("src"),
        )
    )
    columns = torch.arange(28.0)
    return float((moved.sum(0) * columns).sum() / moved.sum() - (still.sum(0) * columns).sum() / still.sum())


def test_the_dial_is_dragged_the_way_the_picture_turns(page: webdriver.Chrome) -> None:
    """From the top to the right is clockwise: a negative angle, and the top of the digit goes right too."""
    dial = page.find_element(By.ID, "dial")
    size = dial.size["width"] / 228
    pull = ActionChains(page).move_to_element_with_offset(dial, 0, round((-90 + 4) * size))
    pull.click_and_hold().move_by_offset(round(60 * size), round(20 * size)).release().perform()
    wait(page, lambda b: said(b, "angle").startswith("−"))
    assert -50 < -float(said(page, "angle")[1:-1]) < -30 and needle(page) > 40
    wait(page, lambda b: side_of_the_top(b) > 0.3)


def test_votes_and_a_heuristic_with_the_keyboard_alone(browser: webdriver.Chrome) -> None:
    with running(open_served("mnist-rotation", gamma=[4.0]), n=3000) as (url, _):
        browser.get(url)
        wait(browser, certified)
        assert "random views" in said(browser, "count") and "smoothed over rotation" in said(browser, "sentence")
        browser.find_element(By.ID, "method").send_keys("base")
        browser.find_element(By.ID, "range").send_keys(Keys.BACKSPACE * 9, "2", Keys.ENTER)
        wait(browser, lambda b: "HEURISTIC" in said(b, "sentence") and "±2°" in said(b, "sentence"))
        assert said(browser, "kind") == "heuristic" and said(browser, "state") == "a guess"
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_draw(page: webdriver.Chrome) -> None:
    page.find_element(By.ID, "tab-draw").click()
    pad = page.find_element(By.ID, "pad")
    pen = ActionChains(page).move_to_element_with_offset(pad, 0, -90).click_and_hold()
    pen.move_by_offset(0, 180).release().perform()
    wait(page, lambda b: said(b, "label") == "1" and certified(b))
    page.find_element(By.ID, "clear").click()
    pad.send_keys(Keys.ARROW_UP * 8, Keys.ARROW_LEFT * 5, Keys.SPACE, Keys.ARROW_RIGHT * 9, Keys.ARROW_DOWN * 2)
    pad.send_keys((Keys.ARROW_LEFT + Keys.ARROW_DOWN * 4) * 3, Keys.SPACE)
    wait(page, lambda b: said(b, "label") == "7")


def test_files_good_and_bad(page: webdriver.Chrome, tmp_path: Path) -> None:
    page.find_element(By.ID, "tab-file").click()
    chooser = page.find_element(By.ID, "file")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    chooser.send_keys(str(tmp_path / "broken.png"))
    error = page.find_element(By.ID, "error")
    wait(page, lambda _: error.is_displayed())
    assert "not a whole PNG or JPEG picture" in error.text
    error.find_element(By.TAG_NAME, "button").click()
    assert not error.is_displayed()
    assert all("422" in entry["message"] for entry in page.get_log("browser"))  # type: ignore[no-untyped-call]
    before = page.find_element(By.ID, "truth").get_attribute("src")
    (tmp_path / "large.png").write_bytes(pictures.encode(torch.rand(3, 200, 300)))
    chooser.send_keys(str(tmp_path / "large.png"))
    wait(page, lambda b: b.find_element(By.ID, "truth").get_attribute("src") != before)
    wait(page, lambda b: said(b, "sentence") != "Working on it …")
    assert said(page, "notes") == "Your picture was made grey, cut and resized from 300×200 to 28×28 pixels."
    assert not error.is_displayed()


def test_a_refusal_of_the_server_is_shown(page: webdriver.Chrome) -> None:
    page.find_element(By.ID, "range").send_keys(Keys.BACKSPACE * 9, "80")
    page.find_element(By.ID, "certify").click()
    error = page.find_element(By.ID, "error")
    wait(page, lambda _: error.is_displayed())
    assert "±80° is beyond what this server allows, ±10°" in error.text
    assert said(page, "sentence") == "No certificate."
    log = page.get_log("browser")  # type: ignore[no-untyped-call]
    assert all("422" in entry["message"] for entry in log)  # the browser itself notes the status


@pytest.fixture
def phone(page: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)  # type: ignore[no-untyped-call]
    yield page
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})  # type: ignore[no-untyped-call]


def test_on_a_phone_the_answer_stays_in_view(phone: webdriver.Chrome, url: str) -> None:
    """Wherever one scrolls, and nothing has to be scrolled sideways, on the page of the API neither."""
    where = "const r = document.getElementById('label').getBoundingClientRect(); return [r.top, r.bottom, scrollY]"
    for down in (0, 300, 900, 1500):
        phone.execute_script(f"scrollTo(0, {down})")  # type: ignore[no-untyped-call]
        top, bottom, scrolled = phone.execute_script(where)  # type: ignore[no-untyped-call]
        assert 0 <= top < bottom <= 300 and (down > 1000 or scrolled == down)
    assert phone.execute_script("return document.documentElement.scrollWidth") <= 390  # type: ignore[no-untyped-call]
    phone.get(f"{url}/docs")
    assert "/v1/predict" in phone.find_element(By.TAG_NAME, "body").text
    assert phone.execute_script("return document.documentElement.scrollWidth") <= 390  # type: ignore[no-untyped-call]


def test_pictures_that_are_not_there_yet_show_no_text(page: webdriver.Chrome) -> None:
    low = page.find_element(By.ID, "low")
    page.execute_script("arguments[0].removeAttribute('src')", low)  # type: ignore[no-untyped-call]
    assert low.value_of_css_property("visibility") == "hidden"


def test_the_token_is_asked_for(browser: webdriver.Chrome) -> None:
    with running(open_served(zoo.EMBEDDED, gamma=[10.0]), "a-long-enough-token") as (url, _):
        browser.get(url)
        wait(browser, lambda b: b.find_element(By.ID, "login").is_displayed())
        browser.find_element(By.ID, "token").send_keys("a-long-enough-token", Keys.ENTER)
        wait(browser, certified)
        assert not browser.find_element(By.ID, "login").is_displayed()
        assert not browser.find_element(By.ID, "error").is_displayed()
    assert all("401" in entry["message"] for entry in browser.get_log("browser"))  # type: ignore[no-untyped-call]
