"""Test the live view in a real browser: the page shows what happens to pods, without a reload.

With LIVE_VIEW_IMAGES=docs/images the tests take the pictures of the documentation again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework.browser import TAKES_PICTURES, LiveView, browser
from framework.containerd import WEB
from framework.kubelet_process import KubeletProcess
from framework.pods import pod, shell, sleeper, with_evidence
from selenium.webdriver import Chrome

NODE = "worker-1"
# Everybody may see the page in this test. Other tests cover its authorization.
OPEN = {
    "enableServer": True,
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
}
# The back-off is short, except when the test takes pictures: the pictures must show what users will see.
RESTARTS = {} if TAKES_PICTURES else {"crashLoopBackOff": {"maxContainerRestartPeriod": "3s"}}
PAYMENTS = "test -e /evidence/database || { echo 'cannot reach database db:5432' >&2; exit 1; }; exec sleep 1000"


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess]) -> KubeletProcess:
    process = new_kubelet(NODE, {**OPEN, **RESTARTS})
    ready = {"readinessProbe": {"periodSeconds": 2, "httpGet": {"path": "/", "port": 8080}}}
    process.write(pod("shop-frontend", {"name": "web", "image": WEB, **ready}, sleeper("metrics")))
    process.write(pod("shop-cart", sleeper("cart")))
    process.write(pod("shop-search", sleeper("search")))
    process.write(pod("node-exporter", sleeper("exporter"), hostNetwork=True))
    process.write(pod("backup", shell("exit 0", "dump"), restartPolicy="Never"))
    settings = [{"name": "settings", "configMap": {"name": "invoices-settings"}}]
    mount = {"volumeMounts": [{"name": "settings", "mountPath": "/settings"}]}
    process.write(pod("invoices", sleeper("invoices", **mount), volumes=settings))
    process.write(pod("reports", {"name": "reports", "image": "registry.invalid/shop/reports:1.9"}))
    process.spawn()
    return process


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    with browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def page(kubelet: KubeletProcess, driver: Chrome) -> LiveView:
    """Return the live view in the browser, once the kubelet's server responds.

    The browser and the kubelet start at the same time.
    """
    kubelet.wait_until_it_answers()
    return LiveView(driver, f"https://127.0.0.1:{kubelet.port}/debug/syncloop")


def test_page_shows_the_node(page: LiveView, kubelet: KubeletProcess) -> None:
    assert page.text("h1") == f"kubelet on {NODE}"
    page.wait("the node is healthy", lambda: page.text("#sentence").startswith("The node is healthy"))
    page.wait("the node's sources", lambda: "file" in page.text("#machine"))
    page.wait("the events of the sync loop", lambda: "last event" in page.text("#machine"))
    page.wait("calls", lambda: "list_containers" in page.text("#calls"))
    page.wait("relists", lambda: "median" in page.text("#plegtext"))
    page.wait("probes", lambda: "GET / on port 8080" in page.text("#probes"))
    for name in ("shop-frontend", "shop-cart", "shop-search", "node-exporter"):
        page.wait_for_state(kubelet.full_name(name), "ready")
    page.wait_for_state(kubelet.full_name("backup"), "succeeded")


def test_manifest_that_cannot_be_used_is_told_while_it_is_there(page: LiveView, kubelet: KubeletProcess) -> None:
    bad = kubelet.manifests / "bad.yaml"
    bad.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: [{name: c}]}\n")
    fault = f"manifest: {bad}: invalid pod: spec.containers[0].image: Required value"
    page.wait("the manifest's error", lambda: page.text("#problems") == fault)
    assert page.text("#sentence").endswith("; at least one manifest has a problem.")
    assert f"    {fault}\n" in kubelet.explain_command("node").stdout
    bad.unlink()
    page.wait("no error of a manifest", lambda: page.text("#problems") == "")


def test_pod_is_added_crashes_is_fixed_and_removed(page: LiveView, kubelet: KubeletProcess, tmp_path: Path) -> None:
    name = kubelet.full_name("payments")
    assert page.state(name) == ""
    evidence = tmp_path / "payments"

    kubelet.write(with_evidence(pod("payments", shell(PAYMENTS, "payments")), evidence))
    page.wait(f"the card of pod {name}", lambda: bool(page.state(name)))

    page.wait_for_state(name, "stuck")
    page.wait("the cause", lambda: "Its container payments ended with exit code 1" in page.sentence(name))
    page.wait(
        "the container's last log line",
        lambda: 'its last output was "cannot reach database db:5432"' in page.sentence(name),
    )
    page.click(name)
    page.wait("the evidence of the cause", lambda: "last line of its log" in page.text(f"{page.card(name)} .evidence"))
    story = page.story(name)
    for stage in ("seen", "admitted", "volumes", "sandbox", "create", "start", "running"):
        assert stage in story
    if TAKES_PICTURES:
        take_pictures(page, kubelet)

    (evidence / "database").touch()
    page.wait_for_state(name, "ready")
    page.wait("the restart of the container", lambda: "has been restarted" in page.sentence(name))

    kubelet.remove("payments")
    page.wait_for_state(name, "stopping", "gone")
    page.wait_for_state(name, "gone")
    page.wait("the reason why the container stopped", lambda: "removed" in page.story(name))


def take_pictures(page: LiveView, kubelet: KubeletProcess) -> None:
    """Take the pictures while the pod `payments` crashes and the pod `reports` waits for its image."""
    name = kubelet.full_name("payments")
    page.wait_for_state(kubelet.full_name("reports"), "stuck")
    page.wait("a longer history", lambda: page.driver.execute_script("return now() - data.node.began") > 50)
    page.wait("the reason of the wait", lambda: "next start in" in page.sentence(name))
    page.picture("live-view-crash", top=page.card(name), height=740)
    page.picture("live-view-dark", "dark", 1180)
    page.picture("live-view", height=1180)
    page.picture("live-view-runtime", top="#calls", height=620)


def test_missing_object_is_named(page: LiveView, kubelet: KubeletProcess) -> None:
    name = kubelet.full_name("invoices")
    page.wait_for_state(name, "stuck")
    assert page.sentence(name).startswith(
        "It waits for its volume settings: ConfigMap invoices-settings does not exist in namespace default."
    )


def test_filter(page: LiveView, kubelet: KubeletProcess) -> None:
    script = (
        "const input = document.querySelector('#filter input'); input.value = arguments[0];"
        "input.dispatchEvent(new Event('input'))"
    )
    page.driver.execute_script(script, "shop-")
    assert page.state(kubelet.full_name("reports")) == ""
    assert page.state(kubelet.full_name("shop-cart")) == "ready"
    page.driver.execute_script(script, "")
    assert page.state(kubelet.full_name("reports")) != ""


def test_browser_has_nothing_to_complain_of(page: LiveView) -> None:
    assert page.complaints() == []


def test_kubelet_that_is_gone_and_comes_back(page: LiveView, kubelet: KubeletProcess) -> None:
    kubelet.stop()
    page.wait(
        "the message that the kubelet does not respond",
        lambda: "The kubelet has not responded since" in page.text("#lost"),
    )
    kubelet.start()
    page.wait("the message is gone", lambda: page.text("#live") == "live" and not page.text("#lost"))
    page.wait_for_state(kubelet.full_name("shop-cart"), "ready")
