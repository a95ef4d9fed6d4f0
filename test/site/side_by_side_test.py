"""Test the site that hack/side_by_side builds: its links, that it shows the whole map, and how it works in a browser.

The test writes a small checkout of Kubernetes, or uses the checkout that SIDE_BY_SIDE_GO names. With LIVE_VIEW_IMAGES
in the environment the test takes the pictures of docs/images.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from posixpath import normpath
from urllib.parse import unquote

import pytest
from framework.browser import IMAGES, TAKES_PICTURES, browser, complaints, prefer_colours
from framework.waiting import wait_for
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from sidebyside import pairs

ROOT = Path(__file__).resolve().parents[2]
GO_FILES = {
    "pkg/kubelet/kubelet.go": """package kubelet

// Kubelet is a stand-in that this test wrote.
type Kubelet struct {
	podWorkers PodWorkers
}

// syncLoopIteration is a stand-in that this test wrote.
func (kl *Kubelet) syncLoopIteration(ctx context.Context) bool {
	kl.podWorkers.UpdatePod(ctx, UpdatePodOptions{})
	return true
}
""",
    "pkg/kubelet/pod_workers.go": """package kubelet

// UpdatePod is a stand-in that this test wrote: it shows how a page looks, and not what Kubernetes does.
func (p *podWorkers) UpdatePod(ctx context.Context, options UpdatePodOptions) {
	p.podLock.Lock()
	defer p.podLock.Unlock()
	status := p.statusOf(options.Pod.UID)
	if options.UpdateType == kubetypes.SyncPodKill {
		status.terminatingAt = p.clock.Now()
	}
	p.startPodSync(ctx)
}

func (p *podWorkers) startPodSync(ctx context.Context) {}

// OnCompleteFunc is a stand-in that this test wrote.
type OnCompleteFunc func(err error)
""",
    "pkg/kubelet/pleg/generic.go": """package pleg

// Relist is a stand-in that this test wrote: it shows how a page looks, and not what Kubernetes does.
func (g *GenericPLEG) Relist() {
	for _, pod := range g.pods() {
		g.updateCache(pod)
	}
}
""",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once for all tests."""
    folder = tmp_path_factory.mktemp("site")
    checkout = Path(os.environ.get("SIDE_BY_SIDE_GO", folder / "go"))
    if "SIDE_BY_SIDE_GO" not in os.environ:
        for name, text in GO_FILES.items():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_text(text)
    command = [sys.executable, str(ROOT / "hack/side_by_side"), "--go", str(checkout), "--output", str(folder / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


@cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(html.unescape(found) for found in re.findall(r'\bid="([^"]+)"', page.read_text()))


def broken_links(site: Path) -> Iterator[str]:
    for page in sorted(site.rglob("*.html")):
        name = str(page.relative_to(site))
        for address in dict.fromkeys(re.findall(r'\b(?:href|src)="([^"]*)"', page.read_text())):
            path, _, fragment = html.unescape(address).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = site / normpath(f"{Path(name).parent}/{unquote(path.partition('?')[0])}") if path else page
            if not target.is_file():
                yield f"{name}: {address}"
            elif fragment and target.suffix == ".html" and unquote(fragment) not in anchors(target):
                yield f"{name}: {address} has no such anchor"


def test_no_link_is_broken(site: Path) -> None:
    assert list(broken_links(site)) == []


def test_every_declaration_of_the_map_has_its_place(site: Path) -> None:
    known = pairs.Site()
    places = {row.declaration.title: known.place_of_row(row) for row in known.rows}
    missing = [name for name, place in places.items() if place.anchor not in anchors(site / f"{place.page}.html")]
    assert len(places) > 4000 and missing == []


def test_every_python_function_has_its_place(site: Path) -> None:
    known = pairs.Site()
    missing = [
        f"{path}:{piece.name}"
        for path in known.paths
        for piece in known.file(path).pieces
        if piece.name not in anchors(site / f"{pairs.page_name(path)}.html") and piece.names and piece.name
    ]
    assert missing == []


def test_every_divergence_is_shown_where_it_is() -> None:
    known = pairs.Site()
    missing = [
        f"{path}:{record.name}"
        for path in known.paths
        for shown in [[record for pair in known.page(path).pairs for record in pair.records]]
        for record in known.records_of(path)
        if shown.count(record) != 1
    ]
    assert missing == []


@pytest.fixture
def page(site: Path) -> Iterator[Chrome]:
    """Open the first page of the site from its file."""
    with browser(1600, 1000) as driver:
        driver.get(f"file://{site}/index.html")
        wait_for("the first page", lambda: "docs/index.html" in driver.current_url)
        yield driver
        assert complaints(driver) == []


def search(driver: Chrome, name: str, steps: int = 0) -> None:
    """Find a name with the keyboard alone, and open the entry that many places below the first."""
    driver.find_element(By.TAG_NAME, "body").send_keys("/")
    box = driver.switch_to.active_element
    box.send_keys(name)
    wait_for("a result of the search", lambda: driver.find_elements(By.CSS_SELECTOR, ".names li"))
    box.send_keys(Keys.ARROW_DOWN * steps + Keys.ENTER)


def sides(driver: Chrome, anchor: str) -> list[dict[str, float]]:
    """Return where the browser shows the two sides of a pair: Go and Python."""
    script = """return [...document.getElementById(arguments[0]).querySelectorAll('.side')]
        .map(each => each.getBoundingClientRect().toJSON())"""
    return list(driver.execute_script(script, anchor))


def test_keyboard_finds_a_function_by_either_name(page: Chrome) -> None:
    search(page, "sync_loop_iteration")
    wait_for(
        "the pair of Go and Python",
        lambda: page.current_url.endswith("code/kubelet/kubelet.html#Kubelet.sync_loop_iteration"),
    )
    search(page, "podWorkers.UpdatePod")
    wait_for("Go's name", lambda: page.current_url.endswith("pod_workers.html#go-pod_workers.go-podWorkers.UpdatePod"))


def test_name_that_go_no_longer_has_is_found(page: Chrome) -> None:
    search(page, "KubeletBootstrap")
    wait_for("the row of the older release", lambda: "pkg/kubelet.html#go-kubelet.go-Kubelet" in page.current_url)
    assert "gone before 1.27" in page.find_element(By.CSS_SELECTOR, "tr:target").text


def test_arrows_choose_among_what_was_found_and_escape_ends_the_search(page: Chrome) -> None:
    page.find_element(By.TAG_NAME, "body").send_keys("/")
    box = page.switch_to.active_element
    box.send_keys("relist")
    wait_for("a result of the search", lambda: page.find_elements(By.CSS_SELECTOR, ".names li"))
    box.send_keys(Keys.ARROW_DOWN)
    chosen = [link.get_attribute("aria-selected") for link in page.find_elements(By.CSS_SELECTOR, ".names li a")]
    assert chosen[:2] == ["false", "true"]
    box.send_keys(Keys.ESCAPE)
    assert page.find_elements(By.CSS_SELECTOR, ".names li") == []


def test_go_stands_beside_python_and_above_it_on_a_narrow_screen(page: Chrome, site: Path) -> None:
    page.get(f"file://{site}/code/kubelet/pod_workers.html#PodWorkers.update_pod")
    go, python = sides(page, "PodWorkers.update_pod")
    assert go["top"] == python["top"] and go["right"] <= python["left"]
    text = page.find_element(By.ID, "PodWorkers.update_pod").text
    assert "func (p *podWorkers) UpdatePod" in text and "def update_pod" in text
    page.set_window_size(600, 900)
    go, python = sides(page, "PodWorkers.update_pod")
    assert go["bottom"] <= python["top"] and go["left"] == python["left"]


def test_step_of_the_walkthrough_opens_the_pair_and_a_call_leads_on(page: Chrome, site: Path) -> None:
    page.get(f"file://{site}/docs/walkthrough.html")
    page.find_element(By.PARTIAL_LINK_TEXT, "Kubelet.sync_loop_iteration").send_keys(Keys.ENTER)
    wait_for(
        "the pair of Go and Python",
        lambda: page.current_url.endswith("code/kubelet/kubelet.html#Kubelet.sync_loop_iteration"),
    )
    pair = page.find_element(By.ID, "Kubelet.sync_loop_iteration")
    pair.find_element(By.CSS_SELECTOR, ".go .highlight a").send_keys(Keys.ENTER)
    wait_for("the call in Go", lambda: page.current_url.endswith("#go-pod_workers.go-podWorkers.UpdatePod"))


def test_names_in_the_picture_of_the_architecture_open_their_pairs(page: Chrome, site: Path) -> None:
    page.get(f"file://{site}/docs/architecture.html")
    picture = page.find_element(By.CSS_SELECTOR, ".picture")
    names = [link.text for link in picture.find_elements(By.TAG_NAME, "a")]
    assert {"sync_loop_iteration", "GenericPLEG", "PodWorkers.update_pod", "sync_pod"} <= set(names)
    picture.find_element(By.LINK_TEXT, "PodWorkers.update_pod").send_keys(Keys.ENTER)
    wait_for(
        "the pair of Go and Python",
        lambda: page.current_url.endswith("code/kubelet/pod_workers.html#PodWorkers.update_pod"),
    )


def test_side_that_is_missing_says_why(page: Chrome, site: Path) -> None:
    page.get(f"file://{site}/code/kubelet/pod_workers.html")
    only_go = page.find_element(By.ID, "go-pod_workers.go-OnCompleteFunc")
    pair = only_go.find_element(By.XPATH, "ancestor::section")
    assert "Left out: " in pair.text
    assert page.find_elements(By.CSS_SELECTOR, ".only-python .why")


def test_divergence_shows_its_record_where_it_is(page: Chrome, site: Path) -> None:
    page.get(f"file://{site}/code/kubelet/pod_workers.html")
    record = page.find_element(By.CSS_SELECTOR, "section[id='PodWorkers.should_pod_content_be_removed'] details")
    record.find_element(By.TAG_NAME, "summary").click()
    assert "Why: " in record.text and "Test: " in record.text


def test_page_follows_the_colour_scheme_and_prints_both_sides(page: Chrome, site: Path) -> None:
    page.get(f"file://{site}/code/kubelet/pod_workers.html")
    colours = []
    for scheme in ("light", "dark"):
        prefer_colours(page, scheme)
        colours.append(page.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert colours[0] != colours[1]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    go, python = sides(page, "PodWorkers.update_pod")
    assert go["right"] <= python["left"]
    assert page.find_element(By.CSS_SELECTOR, ".names").is_displayed() is False


@pytest.mark.parametrize(
    ("name", "scheme", "place"),
    [
        ("side-by-side", "light", "code/kubelet/pod_workers.html#PodWorkers.update_pod"),
        ("side-by-side-dark", "dark", "code/kubelet/pleg/generic.html#GenericPLEG.relist"),
    ],
)
def test_place_is_in_view_in_both_colours(page: Chrome, site: Path, name: str, scheme: str, place: str) -> None:
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    page.get(f"file://{site}/{place}")
    top = sides(page, place.partition("#")[2])[0]["top"]
    assert 0 <= top < 300
    if TAKES_PICTURES:
        IMAGES.mkdir(parents=True, exist_ok=True)
        page.save_screenshot(str(IMAGES / f"{name}.png"))
