"""Test security contexts and hidden paths.

Go: pkg/securitycontext/util_test.go
"""

from __future__ import annotations

import pytest

from pkg import securitycontext
from pkg.api.core import v1
from pkg.securitycontext import util


def _pod(context: v1.PodSecurityContext | None) -> v1.Pod:
    return v1.Pod(spec=v1.PodSpec(containers=[], security_context=context))


def test_container_overrides_pod() -> None:
    pod = _pod(v1.PodSecurityContext(run_as_user=1, run_as_group=2, run_as_non_root=True))
    container = v1.Container(security_context=v1.SecurityContext(run_as_user=0, run_as_non_root=False))
    got = securitycontext.determine_effective_security_context(pod, container)
    assert (got.run_as_user, got.run_as_group, got.run_as_non_root) == (0, 2, False)
    assert pod.spec.security_context is not None and pod.spec.security_context.run_as_user == 1


def test_nothing_set_is_an_empty_context() -> None:
    got = securitycontext.determine_effective_security_context(_pod(None), v1.Container())
    assert got == v1.SecurityContext()


@pytest.mark.parametrize(
    ("pod", "container", "expected"),
    [(None, None, None), (0, None, 0), (None, 5, 5), (1, 0, 0)],
)
def test_run_as_user(pod: int | None, container: int | None, expected: int | None) -> None:
    got = securitycontext.determine_effective_run_as_user(
        _pod(v1.PodSecurityContext(run_as_user=pod)),
        v1.Container(security_context=v1.SecurityContext(run_as_user=container)),
    )
    assert got == expected


@pytest.mark.parametrize(("allow", "expected"), [(None, False), (False, True), (True, False)])
def test_no_new_privileges(allow: bool | None, expected: bool) -> None:
    sc = v1.SecurityContext(allow_privilege_escalation=allow)
    assert securitycontext.add_no_new_privileges(sc) is expected


def test_proc_mount() -> None:
    assert "/proc/kcore" in securitycontext.convert_to_runtime_masked_paths(None)
    assert "/proc/kcore" in securitycontext.convert_to_runtime_masked_paths("Default")
    assert securitycontext.convert_to_runtime_masked_paths("Unmasked") == []
    assert "/proc/sys" in securitycontext.convert_to_runtime_readonly_paths("Default")
    assert securitycontext.convert_to_runtime_readonly_paths("Unmasked") == []


@pytest.mark.parametrize(("text", "cpus"), [("0\n", [0]), ("0-3", [0, 1, 2, 3]), ("0,2-3,7", [0, 2, 3, 7])])
def test_cpu_list(text: str, cpus: list[int]) -> None:
    assert util._parse_cpu_list(text) == cpus
