"""Test the SELinux labels of volumes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pkg.api.core import v1
from pkg.volume import VolumePluginMgr, util
from pkg.volume.plugins import Spec
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.operationexecutor.testing import FakePlugin
from pkg.volume.util.selinux import Translator

ONE, TWO = v1.SELinuxOptions(level="s0:c1,c2"), v1.SELinuxOptions(level="s0:c3,c4")
LABEL = "system_u:object_r:container_file_t:s0:c1,c2"


@pytest.fixture
def translator(tmp_path: Path) -> Translator:
    """Return the translator of a node with SELinux."""
    (tmp_path / "fs").mkdir()
    (tmp_path / "fs/enforce").write_text("1")
    (tmp_path / "etc/targeted/contexts").mkdir(parents=True)
    (tmp_path / "etc/config").write_text("# comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n")
    (tmp_path / "etc/targeted/contexts/lxc_contexts").write_text(
        'process = "system_u:system_r:container_t:s0"\nfile = "system_u:object_r:container_file_t:s0"\n'
    )
    return Translator(str(tmp_path / "fs"), str(tmp_path / "etc"))


class SELinuxPlugin(FakePlugin):
    def __init__(self, supports: bool) -> None:
        super().__init__()
        self.supports = supports

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        return self.supports


@pytest.mark.parametrize(
    ("options", "policy", "supports", "mount", "process"),
    [
        ([], None, True, "", ""),
        ([ONE], None, True, LABEL, LABEL),
        ([ONE, ONE], v1.SE_LINUX_CHANGE_POLICY_MOUNT_OPTION, True, LABEL, LABEL),
        ([ONE], v1.SE_LINUX_CHANGE_POLICY_RECURSIVE, True, "", LABEL),
        ([ONE], None, False, "", LABEL),
    ],
)
def test_label_of_a_volume(
    tmp_path: Path,
    translator: Translator,
    options: list[v1.SELinuxOptions],
    policy: str | None,
    supports: bool,
    mount: str,
    process: str,
) -> None:
    plugins = VolumePluginMgr()
    plugins.init_plugins([SELinuxPlugin(supports)], FakeVolumeHost(str(tmp_path)))
    context = v1.PodSecurityContext(se_linux_change_policy=policy)
    info = util.get_mount_selinux_label(Spec(volume=v1.Volume(name="v")), options, context, plugins, translator)
    assert info == util.SELinuxLabelInfo(mount, process, supports)
    with pytest.raises(util.MultipleSELinuxLabelsError, match=r"multiple SELinux labels found: .*c1,c2,.*c3,c4"):
        util.get_mount_selinux_label(Spec(volume=v1.Volume(name="v")), [ONE, TWO], context, plugins, translator)


def test_translation(translator: Translator) -> None:
    assert translator.selinux_options_to_file_label(None) == ""
    assert translator.selinux_options_to_file_label(v1.SELinuxOptions()) == ""
    user = v1.SELinuxOptions(user="u", role="r", type="container_t", level="s0:c5")
    assert translator.selinux_options_to_file_label(user) == "u:object_r:container_file_t:s0:c5"
    label = translator.selinux_options_to_file_label(v1.SELinuxOptions(type="t"))
    assert re.fullmatch(r"system_u:object_r:container_file_t:s0:c\d+,c\d+", label)


def test_node_without_selinux(tmp_path: Path) -> None:
    translator = Translator(str(tmp_path), str(tmp_path))
    assert not translator.selinux_enabled() and translator.selinux_options_to_file_label(ONE) == ""


def test_policy_without_contexts_for_containers(tmp_path: Path) -> None:
    (tmp_path / "enforce").write_text("1")
    with pytest.raises(util.SELinuxLabelTranslationError, match="cannot read the SELinux policy"):
        Translator(str(tmp_path), str(tmp_path)).selinux_options_to_file_label(ONE)


def test_option_is_quoted() -> None:
    assert util.add_selinux_mount_option(["ro"], LABEL) == ["ro", f'context="{LABEL}"']


@pytest.mark.parametrize(
    ("modes", "supported"),
    [
        ([v1.READ_WRITE_ONCE_POD], True),
        ([v1.READ_WRITE_ONCE_POD, v1.READ_WRITE_ONCE], False),
        ([v1.READ_WRITE_MANY], False),
    ],
)
def test_access_modes(modes: list[str], supported: bool) -> None:
    volume = v1.PersistentVolume(spec=v1.PersistentVolumeSpec(access_modes=modes))
    assert util.volume_supports_selinux_mount(Spec(persistent_volume=volume)) == supported
    assert not util.volume_supports_selinux_mount(Spec(volume=v1.Volume(name="v")))
