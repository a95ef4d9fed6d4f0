"""Test how a container's AppArmor profile is found.

Go: pkg/security/apparmor/helpers_test.go
"""

from __future__ import annotations

import pytest

from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.security import apparmor

_DEFAULT = v1.AppArmorProfile(type="RuntimeDefault")
_UNCONFINED = v1.AppArmorProfile(type="Unconfined")
_MINE = v1.AppArmorProfile(type="Localhost", localhost_profile="mine")


@pytest.mark.parametrize(
    ("annotation", "container", "pod", "expected"),
    [
        (None, None, None, None),
        (None, None, _DEFAULT, _DEFAULT),
        (None, _MINE, _DEFAULT, _MINE),
        ("localhost/mine", None, _DEFAULT, _MINE),
        ("runtime/default", None, None, _DEFAULT),
        ("unconfined", None, _DEFAULT, _UNCONFINED),
        ("unconfined", _MINE, None, _MINE),
        ("nonsense", None, _DEFAULT, _DEFAULT),
    ],
)
def test_get_profile(
    annotation: str | None,
    container: v1.AppArmorProfile | None,
    pod: v1.AppArmorProfile | None,
    expected: v1.AppArmorProfile | None,
) -> None:
    spec = v1.Container(name="c", security_context=v1.SecurityContext(app_armor_profile=container))
    annotations = {}
    if annotation is not None:
        annotations["container.apparmor.security.beta.kubernetes.io/c"] = annotation
    got = v1.Pod(
        metadata=metav1.ObjectMeta(annotations=annotations),
        spec=v1.PodSpec(containers=[spec], security_context=v1.PodSecurityContext(app_armor_profile=pod)),
    )
    assert apparmor.get_profile(got, spec) == expected
