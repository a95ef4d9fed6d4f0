from __future__ import annotations

import pytest

from csi_driver import protocol
from csi_driver.calls import Call

STAGING, TARGET = "/staging", "/pods/a"
METHODS = {
    "stage": "NodeStageVolume",
    "publish": "NodePublishVolume",
    "unpublish": "NodeUnpublishVolume",
    "unstage": "NodeUnstageVolume",
}


def log(text: str) -> list[Call]:
    """Parse calls of the form `publish/pods/b=ABORTED`. The path and `=OK` are optional.

    With `=` and no code, the call never returns. With `+`, the call lasts until the next one has returned. `|` is a
    mark.
    """
    found: list[Call] = []
    marks, line, lasting = 0, 0, []
    for word in text.split():
        if word == "|":
            marks += 1
            continue
        word, lasts, _ = word.partition("+")
        word, has_code, code = word.partition("=")
        name, has_path, path = word.partition("/")
        target = f"/{path}" if has_path else STAGING if "stage" in name else TARGET
        request = {"volume_id": "v", "staging_target_path": STAGING}
        request["staging_target_path" if "stage" in name else "target_path"] = target
        call = Call(METHODS[name], request, line, code=code if has_code else "OK", marks=marks)
        line += 1
        if lasts:
            lasting.append(call)
        else:
            for each in (call, *lasting):
                each.ended = line if each.code else None
                line += 1
            lasting = []
        found.append(call)
    return found


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("stage publish unpublish unstage", ""),
        ("stage publish publish/pods/b unpublish unpublish/pods/b unstage", ""),
        ("stage= stage publish= publish unpublish= unpublish unstage= unstage", ""),
        ("stage=INTERNAL stage publish=INTERNAL unstage", ""),
        ("stage=UNAVAILABLE unstage", ""),
        ("stage publish=ABORTED unpublish unstage", ""),
        ("stage publish stage publish unpublish unpublish unstage", "unpublished at /pods/a, where it is not"),
        ("publish", "published at /pods/a although it is not staged at '/staging'"),
        ("stage= publish", "published at /pods/a although it is not staged at '/staging'"),
        ("stage unstage= publish", "published at /pods/a although it is not staged at '/staging'"),
        ("stage publish unstage", "unstaged while it may be published at ['/pods/a']"),
        ("stage publish= unstage", "unstaged while it may be published at ['/pods/a']"),
        ("stage publish unpublish= unstage", "unstaged while it may be published at ['/pods/a']"),
        ("stage stage/elsewhere", "staged at /elsewhere while it may be staged at ['/staging']"),
        ("stage=INTERNAL stage/elsewhere", ""),
        ("stage unstage/elsewhere", "unstaged at /elsewhere, where it is not"),
        ("unstage", "unstaged at /staging, where it is not"),
        ("stage+ publish", "NodePublishVolume came during NodeStageVolume"),
        ("stage+ | stage=ABORTED publish", ""),
        ("stage publish unpublish | unpublish unstage | unstage", ""),
        ("stage publish unpublish | unpublish unpublish unstage", "unpublished at /pods/a, where it is not"),
        ("stage publish unpublish unstage | unstage/b", "unstaged at /b, where it is not"),
    ],
)
def test_order(text: str, violation: str) -> None:
    found = protocol.violations(log(text))
    assert [f"v: {violation}"] == found if violation else found == []


def test_a_driver_that_stages_nothing() -> None:
    assert protocol.violations(log("publish unpublish"), stages=False) == []


def test_an_ephemeral_volume_is_not_staged() -> None:
    calls = log("publish unpublish")
    calls[0].request["volume_context"] = {"csi.storage.k8s.io/ephemeral": "true"}
    assert protocol.violations(calls) == []


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("stage publish unpublish unstage", set()),
        ("stage publish", {STAGING, TARGET}),
        ("stage publish unpublish=", {STAGING, TARGET}),
        ("stage publish= unpublish", {STAGING}),
        ("stage=INTERNAL", set()),
        ("stage=", {STAGING}),
    ],
)
def test_what_is_left(text: str, places: set[str]) -> None:
    assert protocol.left(log(text)) == ({"v": places} if places else {})
