"""Test image volumes.

Go: pkg/volume/image/image_test.go
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.volume import MetricsError, MounterArgs, Spec, VolumePluginMgr
from pkg.volume.image import probe_volume_plugins
from pkg.volume.testing import FakeVolumeHost


def test_plugin(tmp_path: Path) -> None:
    plugins = VolumePluginMgr()
    plugins.init_plugins(probe_volume_plugins(), FakeVolumeHost(str(tmp_path)))
    plugin = plugins.find_plugin_by_name("kubernetes.io/image")
    spec = Spec(v1.Volume(name="v", image=v1.ImageVolumeSource(reference="busybox:1")))
    assert plugin.can_support(spec) and not plugin.can_support(Spec()) and not plugin.can_support(Spec(v1.Volume()))
    assert plugin.get_volume_name(spec) == "busybox:1"
    with pytest.raises(ValueError, match="does not reference an Image volume type"):
        plugin.get_volume_name(Spec())


def test_nothing_is_done(tmp_path: Path) -> None:
    (plugin,) = probe_volume_plugins()
    plugin.init(FakeVolumeHost(str(tmp_path)))
    mounter = plugin.new_mounter(Spec(), v1.Pod())
    mounter.set_up(MounterArgs())
    assert mounter.get_path() == "" and mounter.get_attributes().read_only
    with pytest.raises(MetricsError):
        mounter.get_metrics()
    plugin.new_unmounter("v", types.UID("u")).tear_down()
    assert not any(tmp_path.iterdir())
