"""Test the validation of AppArmor profiles.

Go: pkg/security/apparmor/validate_test.go
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.security import apparmor
from pkg.security.apparmor.validate import is_enabled

PREFIX = v1.DEPRECATED_APP_ARMOR_BETA_CONTAINER_ANNOTATION_KEY_PREFIX


def host(folder: Path, enabled: bool = True) -> apparmor.Validator:
    folder.mkdir()
    (folder / "enabled").write_text("Y\n" if enabled else "N\n")
    return apparmor.Validator(folder, folder / "enabled")


def profile(kind: str, name: str | None = None) -> v1.AppArmorProfile:
    return v1.AppArmorProfile(type=kind, localhost_profile=name)


def with_field(kind: str, name: str | None = None, where: str = "containers") -> v1.Pod:
    """Return a pod with the profile in the pod's or in one container's security context."""
    pod = v1.Pod(spec=v1.PodSpec(containers=[v1.Container(name="main")]))
    if where == "pod":
        pod.spec.security_context = v1.PodSecurityContext(app_armor_profile=profile(kind, name))
        return pod
    context = v1.SecurityContext(app_armor_profile=profile(kind, name))
    if where == "ephemeral":
        pod.spec.ephemeral_containers = [v1.EphemeralContainer(name="c", security_context=context)]
    elif where == "init":
        pod.spec.init_containers = [v1.Container(name="c", security_context=context)]
    else:
        pod.spec.containers = [v1.Container(name="c", security_context=context)]
    return pod


def with_annotation(value: str, **others: str) -> v1.Pod:
    """Return a pod with the annotation for the container "c", and with annotations for other containers."""
    annotations = {PREFIX + "c": value, "other": "runtime/default"}
    annotations |= {PREFIX + name: other for name, other in others.items()}
    return v1.Pod(
        metadata=metav1.ObjectMeta(annotations=annotations),
        spec=v1.PodSpec(containers=[v1.Container(name="c")]),
    )


@pytest.mark.parametrize(
    ("pod", "fault"),
    [
        (v1.Pod(), ""),
        (with_field("Unconfined"), ""),
        (with_field("RuntimeDefault"), ""),
        (with_field("Localhost", "docker-default"), ""),
        (with_field("Localhost"), 'invalid empty AppArmor profile name: "" of container "c"'),
        (with_field("Localhost", "  "), 'invalid empty AppArmor profile name: "  " of container "c"'),
        (with_field("Localhost", "", "pod"), 'invalid empty AppArmor profile name: "" of container "main"'),
        (with_field("Localhost", "", "init"), 'invalid empty AppArmor profile name: "" of container "c"'),
        (with_field("Localhost", "", "ephemeral"), 'invalid empty AppArmor profile name: "" of container "c"'),
        (with_annotation("unconfined"), ""),
        (with_annotation("localhost/mine"), ""),
        (with_annotation("localhost/"), 'invalid empty AppArmor profile name: "" of container "c"'),
    ],
)
def test_validate(pod: v1.Pod, fault: str, tmp_path: Path) -> None:
    validator = host(tmp_path / "apparmor")
    if not fault:
        validator.validate(pod)
        return
    with pytest.raises(ValueError, match=fault):
        validator.validate(pod)


@pytest.mark.parametrize(
    ("pod", "required"),
    [
        (v1.Pod(), False),
        (with_field("Unconfined", where="pod"), False),
        (with_annotation("unconfined"), False),
        (with_field("RuntimeDefault", where="pod"), True),
        (with_field("RuntimeDefault", where="init"), True),
        (with_field("RuntimeDefault", where="ephemeral"), True),
        (with_annotation("unconfined", another="runtime/default"), True),
        (with_annotation("runtime/default"), True),
    ],
)
def test_bad_host(pod: v1.Pod, required: bool, tmp_path: Path) -> None:
    validator = host(tmp_path / "apparmor", enabled=False)
    if not required:
        validator.validate(pod)
        return
    with pytest.raises(ValueError, match=r"^AppArmor is not enabled on the host$"):
        validator.validate(pod)


def test_is_enabled(tmp_path: Path) -> None:
    enabled = tmp_path / "enabled"
    assert not is_enabled(tmp_path, enabled), "the module is not loaded"
    enabled.write_text("Y\n")
    assert is_enabled(tmp_path, enabled)
    assert not is_enabled(tmp_path / "none", enabled), "the file system is not mounted"
