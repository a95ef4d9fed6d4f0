"""Test the metrics of the volume manager."""

from __future__ import annotations

from pathlib import Path

from kubelet.volumemanager import testing
from kubelet.volumemanager.cache import ActualStateOfWorld, DesiredStateOfWorld
from kubelet.volumemanager.metrics import TotalVolumesCollector
from pkg.apimachinery import types
from pkg.volume import VolumePluginMgr
from pkg.volume import util as volumeutil
from pkg.volume.testing import FakeVolumeHost
from pkg.volume.util.operationexecutor import MarkVolumeOpts, VolumeMountState


def test_volumes_are_counted_by_state_and_plugin(tmp_path: Path) -> None:
    plugins = VolumePluginMgr()
    plugins.init_plugins([testing.FakeDeviceMountableVolumePlugin()], FakeVolumeHost(str(tmp_path)))
    desired, actual = DesiredStateOfWorld(plugins, volumeutil.Translator()), ActualStateOfWorld("node", plugins)
    spec = testing.new_persistent_volume_spec("pv")
    name = ""
    for uid in ("a", "b"):
        name = desired.add_pod_to_volume(uid, testing.new_pod(uid), spec, "v", "", [])
    actual.mark_volume_as_attached(name, spec, "node", "")
    mounted, uncertain = VolumeMountState.VOLUME_MOUNTED, VolumeMountState.VOLUME_MOUNT_UNCERTAIN
    for uid, state in (("a", mounted), ("b", uncertain)):
        actual.mark_volume_as_mounted(MarkVolumeOpts(uid, types.UID(uid), name, spec, volume_mount_state=state))
    (family,) = TotalVolumesCollector(actual, desired, plugins).collect()
    assert family.name == "volume_manager_total_volumes"
    assert {(s.labels["plugin_name"], s.labels["state"]): s.value for s in family.samples} == {
        ("test.io/fake-plugin", "actual_state_of_world"): 1,
        ("test.io/fake-plugin", "desired_state_of_world"): 2,
    }


def test_no_volumes_no_samples(tmp_path: Path) -> None:
    plugins = VolumePluginMgr()
    desired, actual = DesiredStateOfWorld(plugins, volumeutil.Translator()), ActualStateOfWorld("node", plugins)
    collector = TotalVolumesCollector(actual, desired, plugins)
    assert [list(family.samples) for family in (*collector.collect(), *collector.describe())] == [[], []]
