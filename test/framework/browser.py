"""Run a headless browser and inspect the live view in it, as a user sees it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from framework.waiting import wait_for

NEEDED = ("chromium", "chromedriver")

# The environment variable names the directory for screenshots. Without it the tests take none.
TAKES_PICTURES = "LIVE_VIEW_IMAGES" in os.environ
IMAGES = Path(os.environ.get("LIVE_VIEW_IMAGES", ""))


@contextmanager
def browser(width: int = 1360, height: int = 900) -> Iterator[Chrome]:
    """Run Debian's chromium, which accepts every certificate because a kubelet signs its own."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        pytest.fail(f"tests of the live view need {' and '.join(missing)}; hack/setup browser installs them")
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--ignore-certificate-errors",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def prefer_colours(driver: Chrome, scheme: str) -> None:
    """Have the browser ask pages for a colour scheme: light or dark."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def complaints(driver: Chrome) -> list[str]:
    """Return what the browser logged about its pages: script errors, and resources that it did not load."""
    logged = driver.get_log("browser")  # type: ignore[no-untyped-call]
    return [str(entry["message"]) for entry in logged if "favicon" not in entry["message"]]


class LiveView:
    """Inspect the live view's page in a browser."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self._url = url
        driver.get(url)
        self.wait("the page has content", self._is_shown)

    def _is_shown(self) -> bool:
        # Chromium stops loading a page when a network interface appears or disappears, as the pods of other tests
        # cause.
        if "ERR_NETWORK_CHANGED" in self.text("body"):
            self.driver.get(self._url)
        return bool(self.text("#sentence"))

    def wait(self, what: str, look: object, timeout: float = 120) -> None:
        wait_for(f"on the page: {what}", look, timeout, lambda: self.driver.find_element(By.TAG_NAME, "body").text)  # type: ignore[arg-type]

    def text(self, selector: str) -> str:
        """Return the text of the first element that the selector matches, or "" if there is none."""
        found = self.driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return str(found)

    def state(self, pod: str) -> str:
        """Return the state of a pod's card, or "" if the page has no such card."""
        return self._of(pod, "dataset.state")

    def sentence(self, pod: str) -> str:
        return self._of(pod, "querySelector('.sentence').innerText")

    def story(self, pod: str) -> str:
        """Return the whole text of the timeline in a pod's open card."""
        return self._of(pod, "querySelector('.gantt')?.textContent")

    def card(self, pod: str) -> str:
        """Return the CSS selector of a pod's card."""
        return f'[data-pod="default/{pod}"]'

    def _of(self, pod: str, what: str) -> str:
        script = f"return document.querySelector(arguments[0])?.{what} ?? ''"
        return str(self.driver.execute_script(script, self.card(pod)))

    def wait_for_state(self, pod: str, *states: str, timeout: float = 120) -> None:
        self.wait(f"{pod} is {' or '.join(states)}", lambda: self.state(pod) in states, timeout)

    def click(self, pod: str) -> None:
        """Open a pod's card, or close it if it is open."""
        self.driver.execute_script("document.querySelector(arguments[0]).click()", f"{self.card(pod)} .head")

    def complaints(self) -> list[str]:
        """Return what the browser reports about the page: script errors and resources that it refused to load."""
        return complaints(self.driver)

    def picture(
        self, name: str, scheme: str = "light", height: int = 900, top: str = "header", width: int = 1360
    ) -> None:
        """Save a screenshot of the page, scrolled to the element `top`, in the light or the dark colour scheme."""
        IMAGES.mkdir(parents=True, exist_ok=True)
        prefer_colours(self.driver, scheme)
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        script = "window.scrollTo(0, document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY - 16)"
        self.driver.execute_script(script, top)
        # Wait for two frames, so that the page's script has drawn everything in these colours.
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        self.driver.save_screenshot(str(IMAGES / f"{name}.png"))
