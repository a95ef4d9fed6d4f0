"""A browser without a window, and the live view as somebody sees it there."""

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

# Where pictures of the page go, if there are to be any.
TAKES_PICTURES = "LIVE_VIEW_IMAGES" in os.environ
IMAGES = Path(os.environ.get("LIVE_VIEW_IMAGES", ""))


@contextmanager
def browser(width: int = 1360, height: int = 900) -> Iterator[Chrome]:
    """Debian's chromium. It believes every certificate: a kubelet signs its own."""
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


class LiveView:
    """The page, opened in a browser."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self._url = url
        driver.get(url)
        self.wait("the page shows something", self._is_shown)

    def _is_shown(self) -> bool:
        # Chromium stops loading when a network interface comes or goes, as those of other tests' pods do.
        if "ERR_NETWORK_CHANGED" in self.text("body"):
            self.driver.get(self._url)
        return bool(self.text("#sentence"))

    def wait(self, what: str, look: object, timeout: float = 120) -> None:
        wait_for(f"on the page: {what}", look, timeout, lambda: self.driver.find_element(By.TAG_NAME, "body").text)  # type: ignore[arg-type]

    def text(self, selector: str) -> str:
        """The text of the first element; empty without one."""
        found = self.driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return str(found)

    def state(self, pod: str) -> str:
        """The state of a pod's card; empty without one."""
        return self._of(pod, "dataset.state")

    def sentence(self, pod: str) -> str:
        return self._of(pod, "querySelector('.sentence').innerText")

    def story(self, pod: str) -> str:
        """All that is written in the timeline of a pod's open card."""
        return self._of(pod, "querySelector('.gantt')?.textContent")

    def card(self, pod: str) -> str:
        """What selects a pod's card."""
        return f'[data-pod="default/{pod}"]'

    def _of(self, pod: str, what: str) -> str:
        script = f"return document.querySelector(arguments[0])?.{what} ?? ''"
        return str(self.driver.execute_script(script, self.card(pod)))

    def wait_for_state(self, pod: str, *states: str, timeout: float = 120) -> None:
        self.wait(f"{pod} is {' or '.join(states)}", lambda: self.state(pod) in states, timeout)

    def click(self, pod: str) -> None:
        """Open or close a pod's card."""
        self.driver.execute_script("document.querySelector(arguments[0]).click()", f"{self.card(pod)} .head")

    def complaints(self) -> list[str]:
        """What the browser says of the page: errors of its script, things that it was not let load."""
        said = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(entry["message"]) for entry in said if "favicon" not in entry["message"]]

    def picture(
        self, name: str, scheme: str = "light", height: int = 900, top: str = "header", width: int = 1360
    ) -> None:
        """A picture of the page from an element on, in light or dark."""
        IMAGES.mkdir(parents=True, exist_ok=True)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        script = "window.scrollTo(0, document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY - 16)"
        self.driver.execute_script(script, top)
        # Two frames, so that what is drawn by script is drawn in these colours.
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        self.driver.save_screenshot(str(IMAGES / f"{name}.png"))
