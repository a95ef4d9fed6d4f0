"""Test flags, files and drop-ins: their precedence, and the output of `config explain`.

Go: cmd/kubelet/app/server_test.go (TestMergeKubeletConfigurations), cmd/kubelet/app/options/options_test.go
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubelet_cmd.kubelet.app import configuration, explain, options, supported

from kubelet import eviction
from kubelet.apis.config import scheme
from pkg import features
from pkg.component_base.cli import flag as cliflag

_HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


@pytest.fixture(autouse=True)
def _untouched_gates() -> Iterator[None]:
    yield
    features.feature_gate.reset()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conf.d").mkdir()
    return tmp_path


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_HEAD + text)
    return path


def _load(*args: str) -> configuration.Loaded:
    loaded = configuration.parse_flags(list(args), io.StringIO())
    configuration.load(loaded, list(args))
    return loaded


def _field(loaded: configuration.Loaded, path: str) -> tuple[Any, str]:
    """Return the value and the source of a field; a `/` precedes the key of a map."""
    value: Any = scheme.to_versioned(loaded.kubelet_configuration)
    name, _, key = path.partition("/")
    for part in name.split("."):
        value = value[part]
    if key:
        return value[key], loaded.sources.of(f"{name}.{key}")
    return value, loaded.sources.of(name)


# The following tests are about defaults.


def test_without_a_file_the_server_is_open() -> None:
    loaded = _load()
    assert _field(loaded, "authentication.anonymous.enabled") == (True, "default without --config")
    assert _field(loaded, "authorization.mode") == ("AlwaysAllow", "default without --config")
    assert _field(loaded, "readOnlyPort") == (10255, "default without --config")
    assert _field(loaded, "evictionHard") == ({}, "default")


def test_with_a_file_it_is_closed(folder: Path) -> None:
    loaded = _load("--config", str(_write(folder / "a.yaml", "maxPods: 5\n")))
    assert _field(loaded, "authentication.anonymous.enabled") == (False, "default")
    assert _field(loaded, "authorization.mode") == ("Webhook", "default")
    assert _field(loaded, "readOnlyPort") == (0, "default")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", eviction.DEFAULT_EVICTION_HARD),
        ("evictionHard: {memory.available: 1Gi}", {"memory.available": "1Gi"}),
        ("evictionHard: {}", {}),
        (
            "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true",
            {**eviction.DEFAULT_EVICTION_HARD, "memory.available": "1Gi"},
        ),
    ],
)
def test_hard_eviction_defaults(folder: Path, text: str, expected: dict[str, str]) -> None:
    loaded = _load("--config", str(_write(folder / "a.yaml", text)))
    assert loaded.kubelet_configuration.eviction_hard == expected


# The following tests are about precedence.


def test_file_then_dropins_then_flags(folder: Path) -> None:
    file = _write(folder / "a.yaml", "maxPods: 1\nport: 1001\npodPidsLimit: 100\nclusterDomain: file\n")
    first = _write(folder / "conf.d/10-a.conf", "maxPods: 2\nport: 1002\npodPidsLimit: 200\n")
    second = _write(folder / "conf.d/20-b.conf", "maxPods: 3\nport: 1003\n")
    loaded = _load(f"--config={file}", f"--config-dir={folder / 'conf.d'}", "--max-pods=4")
    assert _field(loaded, "maxPods") == (4, "flag --max-pods")
    assert _field(loaded, "port") == (1003, f"drop-in {second}")
    assert _field(loaded, "podPidsLimit") == (200, f"drop-in {first}")
    assert _field(loaded, "clusterDomain") == ("file", f"file {file}")
    assert _field(loaded, "healthzPort") == (10248, "default")


def test_a_zero_that_a_default_replaces_is_not_the_files(folder: Path) -> None:
    file = _write(folder / "a.yaml", "maxPods: 0\nsyncFrequency: 0s\nhealthzPort: 0\n")
    loaded = _load(f"--config={file}")
    assert _field(loaded, "maxPods") == (110, "default")
    assert _field(loaded, "syncFrequency") == ("1m0s", "default")
    assert _field(loaded, "healthzPort") == (0, f"file {file}")


@pytest.mark.parametrize(
    ("base", "dropin", "path", "value"),
    [
        ("evictionHard: {a: '1', b: '2'}", "evictionHard: {b: '3'}", "evictionHard", {"a": "1", "b": "3"}),
        ("evictionHard: {a: '1', b: '2'}", "evictionHard: {b: null}", "evictionHard", {"a": "1"}),
        ("clusterDNS: [a, b]", "clusterDNS: [c]", "clusterDNS", ["c"]),
        ("clusterDNS: [a, b]", "clusterDNS: []", "clusterDNS", []),
        ("maxPods: 7", "maxPods: null", "maxPods", 110),
        (
            "authentication: {anonymous: {enabled: true}}",
            "authentication: {webhook: {enabled: false}}",
            "authentication.anonymous.enabled",
            True,
        ),
        (
            "registerWithTaints: [{key: a, effect: NoSchedule}]",
            "registerWithTaints: []",
            "registerWithTaints",
            [],
        ),
        # A default of the base counts as a set value, as in Go.
        ("maxPods: 7", "nodeStatusUpdateFrequency: 30s", "nodeStatusReportFrequency", "5m0s"),
        ("maxPods: 7", "maxParallelImagePulls: 5", "serializeImagePulls", True),
        ("enforceNodeAllocatable: []", "maxPods: 7", "enforceNodeAllocatable", []),
        (
            "featureGates: {EventedPLEG: true}",
            "featureGates: {MemoryQoS: true}",
            "featureGates",
            {"EventedPLEG": True, "MemoryQoS": True},
        ),
    ],
)
def test_merging(folder: Path, base: str, dropin: str, path: str, value: object) -> None:
    file = _write(folder / "a.yaml", base)
    _write(folder / "conf.d/a.conf", dropin)
    assert _field(_load(f"--config={file}", f"--config-dir={folder / 'conf.d'}"), path)[0] == value


def test_null_in_a_dropin_gives_the_field_back_to_the_defaults(folder: Path) -> None:
    file = _write(folder / "a.yaml", "maxPods: 7")
    _write(folder / "conf.d/a.conf", "maxPods: null")
    assert _field(_load(f"--config={file}", f"--config-dir={folder / 'conf.d'}"), "maxPods") == (
        110,
        "default",
    )


def test_dropins_are_found_below_and_in_order_and_others_are_left(folder: Path) -> None:
    _write(folder / "conf.d/b.conf", "maxPods: 2")
    _write(folder / "conf.d/a/z.conf", "maxPods: 1\nport: 1001")
    skipped = _write(folder / "conf.d/note.yaml", "nonsense: 1")
    loaded = _load(f"--config-dir={folder / 'conf.d'}")
    assert _field(loaded, "maxPods") == (2, f"drop-in {folder / 'conf.d/b.conf'}")
    assert _field(loaded, "port") == (1001, f"drop-in {folder / 'conf.d/a/z.conf'}")
    assert loaded.skipped_dropin_files == [str(skipped)]
    # Without --config the legacy defaults are the base.
    assert _field(loaded, "readOnlyPort") == (10255, "default without --config")


def test_gates_of_flags_and_files_add_up(folder: Path) -> None:
    file = _write(folder / "a.yaml", "featureGates: {EventedPLEG: true, MemoryQoS: false}")
    loaded = _load(f"--config={file}", "--feature-gates=MemoryQoS=true")
    assert _field(loaded, "featureGates/EventedPLEG") == (True, f"file {file}")
    assert _field(loaded, "featureGates/MemoryQoS") == (True, "flag --feature-gates")
    assert features.feature_gate.enabled(features.EVENTED_PLEG)
    assert features.feature_gate.enabled(features.MEMORY_QOS)


def test_a_map_flag_replaces_the_files_map(folder: Path) -> None:
    file = _write(folder / "a.yaml", "evictionHard: {memory.available: 1Gi, pid.available: 5%}")
    loaded = _load(f"--config={file}", "--eviction-hard=nodefs.available<3%")
    assert _field(loaded, "evictionHard") == ({"nodefs.available": "3%"}, "flag --eviction-hard")
    assert _field(loaded, "evictionHard/nodefs.available") == ("3%", "flag --eviction-hard")


def test_lists_and_taints_by_flag() -> None:
    kc = _load("--cluster-dns=10.0.0.1,10.0.0.2", "--register-with-taints=a=b:NoSchedule,c:NoExecute")
    assert kc.kubelet_configuration.cluster_dns == ["10.0.0.1", "10.0.0.2"]
    taints = kc.kubelet_configuration.register_with_taints
    assert [(taint.key, taint.value, taint.effect) for taint in taints] == [
        ("a", "b", "NoSchedule"),
        ("c", "", "NoExecute"),
    ]


def test_reserved_memory_by_flag() -> None:
    loaded = _load("--reserved-memory", "0:memory=1Gi,hugepages-1M=2Gi;1:memory=2Gi", "--reserved-memory=2:memory=1Gi")
    found = loaded.kubelet_configuration.reserved_memory
    assert [(item.numa_node, sorted(item.limits)) for item in found] == [
        (0, ["hugepages-1M", "memory"]),
        (1, ["memory"]),
        (2, ["memory"]),
    ]


def test_relative_paths_of_a_file_start_at_the_file(folder: Path) -> None:
    file = _write(folder / "a.yaml", "staticPodPath: manifests\npodLogsDir: /logs\n")
    kc = _load(f"--config={file}").kubelet_configuration
    assert kc.static_pod_path == str(folder / "manifests")
    assert kc.pod_logs_dir == "/logs"


# The following tests are about faults.


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "foo: 1\nport: x", 'unknown field "foo", port: expected int32, got string "x"'),
        ("a.yaml", "featureGates: {Nope: true}", "unrecognized feature gate: Nope"),
        ("conf.d/a.conf", "maxPods: 1\nmaxPods: 2", 'strict decoding error: duplicate field "maxPods" in line 4'),
        ("conf.d/a.conf", "maxPods: x", 'strict decoding error: maxPods: expected int32, got string "x"'),
    ],
)
def test_faults_name_the_file(folder: Path, name: str, text: str, message: str) -> None:
    _write(folder / "a.yaml", "")
    path = _write(folder / name, text)
    with pytest.raises(ValueError) as caught:
        _load(f"--config={folder / 'a.yaml'}", f"--config-dir={folder / 'conf.d'}")
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith(message)


def test_fields_that_are_not_known_or_there_twice_are_passed_over(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = _write(folder / "a.yaml", "maxPods: 1\nauthentication: {foo: 1}\nmaxPods: 2\n")
    dropin = _write(folder / "conf.d/a.conf", "bar: 1\nport: 1001\n")
    loaded = _load(f"--config={file}", f"--config-dir={folder / 'conf.d'}")
    assert _field(loaded, "maxPods") == (2, f"file {file}")
    assert _field(loaded, "port") == (1001, f"drop-in {dropin}")
    faults = ['duplicate field "maxPods" in line 5', 'unknown field "authentication.foo"']
    told = [(fault, f"file {file}") for fault in faults] + [('unknown field "bar"', f"drop-in {dropin}")]
    assert [row[1:] for row in explain.explain(loaded) if row.field == "(ignored)"] == told
    logged = capfd.readouterr().err
    assert "Using lenient decoding as strict decoding failed" in logged
    assert all(json.dumps(fault)[1:-1] in logged for fault in faults)


def test_missing_and_empty_files(folder: Path) -> None:
    with pytest.raises(ValueError, match="failed to read kubelet config file"):
        _load(f"--config={folder / 'none'}")
    (folder / "empty").touch()
    with pytest.raises(ValueError, match="was empty"):
        _load(f"--config={folder / 'empty'}")
    with pytest.raises(ValueError, match="No such file or directory"):
        _load(f"--config-dir={folder / 'none'}")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("a=b,node.kubernetes.io/x=y,kubernetes.io/hostname=h", ""),
        (
            "kubernetes.io/x=y",
            "unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [kubernetes.io/x]",
        ),
        ("foo.k8s.io/x=y", "unknown 'kubernetes.io' or 'k8s.io' labels"),
        ("a b=c", "invalid node labels: 'a b' - "),
        ("a=b c", "invalid node labels: 'b c' - "),
    ],
)
def test_node_labels(labels: str, message: str) -> None:
    flags = options.KubeletFlags(node_labels=dict(pair.split("=") for pair in labels.split(",")))
    if not message:
        options.validate_kubelet_flags(flags)
        return
    with pytest.raises(ValueError) as caught:
        options.validate_kubelet_flags(flags)
    assert str(caught.value).startswith(message)


# The following tests are about the flags themselves.


def test_a_deprecated_flag_names_the_field_that_replaces_it() -> None:
    output = io.StringIO()
    configuration.parse_flags(["--authentication-token-webhook=false"], output)
    assert output.getvalue() == (
        "Flag --authentication-token-webhook has been deprecated, "
        "set authentication.webhook.enabled in the file given with --config instead\n"
    )


def test_flags_without_effect_are_accepted() -> None:
    loaded = _load("--housekeeping-interval=5s", "--containerd=/x", "--log-cadvisor-usage")
    assert loaded.global_flags.ignored["housekeeping-interval"] == "5s"


def test_every_flag_takes_its_own_default() -> None:
    plain = configuration.parse_flags([], io.StringIO())
    # A flag shows a list in brackets, but does not accept brackets.
    flags = [flag for flag in plain.flag_set if flag.value.string() and flag.value.type != "strings"]
    args = [f"--{flag.name}={flag.value.string()}" for flag in flags]
    loaded = configuration.parse_flags(args, io.StringIO())
    assert loaded.kubelet_configuration == plain.kubelet_configuration
    assert loaded.kubelet_flags == plain.kubelet_flags


def test_unknown_flag() -> None:
    with pytest.raises(cliflag.FlagError, match="unknown flag: --bogus"):
        configuration.parse_flags(["--bogus"], io.StringIO())


# The following tests are about `config explain`.


def _rows(loaded: configuration.Loaded) -> dict[str, explain.Row]:
    return {row.field: row for row in explain.explain(loaded)}


def test_explain_names_every_field_flag_and_gate(folder: Path) -> None:
    file = _write(folder / "a.yaml", "maxPods: 5\nevictionHard: {memory.available: 1Gi}\n")
    rows = _rows(_load(f"--config={file}", "--root-dir=/r", "--feature-gates=AllBeta=true,MemoryQoS=false"))
    assert rows["maxPods"] == ("maxPods", 5, f"file {file}")
    assert rows["evictionHard.memory.available"][1:] == ("1Gi", f"file {file}")
    assert rows["--root-dir"][1:] == ("/r", "flag --root-dir")
    assert rows["--node-ip"][1:] == ("", "default")
    assert rows["featureGates.MemoryQoS"][1:] == (False, "flag --feature-gates")
    assert rows["featureGates.EventedPLEG"][1:] == (False, "default")
    assert rows["featureGates.CPUManagerPolicyBetaOptions"][1:] == (True, "flag --feature-gates (AllBeta)")
    # A flag that sets a field appears as that field.
    assert "--max-pods" not in rows


def test_explain_hides_credentials() -> None:
    rows = _rows(_load("--manifest-url=http://a", "--manifest-url-header=Authorization:secret"))
    assert rows["staticPodURLHeader.Authorization"][1:] == ("<masked>", "flag --manifest-url-header")


def test_explain_renders() -> None:
    rows = [explain.Row("maxPods", 5, "default"), explain.Row("clusterDNS", ["a"], "file x")]
    assert explain.render(rows, "table").splitlines() == [
        "FIELD       VALUE  SOURCE",
        "maxPods     5      default",
        'clusterDNS  ["a"]  file x',
    ]
    assert json.loads(explain.render(rows, "json")) == [
        {"field": "maxPods", "value": 5, "source": "default"},
        {"field": "clusterDNS", "value": ["a"], "source": "file x"},
    ]


# The following tests are about settings without effect.


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("volumePluginDir: /plugins", ["volumePluginDir"]),
        # These settings have an effect.
        ("evictionSoft: {memory.available: 1Gi}\nkernelMemcgNotification: true", []),
        ("enforceNodeAllocatable: []\nprotectKernelDefaults: true\nqosReserved: {memory: 50%}", []),
        ("cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'true'}", []),
        ("logging: {options: {json: {infoBufferSize: 1Ki}}}", ["logging.options.json.infoBufferSize"]),
        # These settings request the existing behaviour.
        ("hairpinMode: promiscuous-bridge", []),
        ("makeIPTablesUtilChains: false", []),
        ("maxPods: 5\nstaticPodPath: /m", []),
    ],
)
def test_a_field_set_in_vain_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, told: list[str]
) -> None:
    supported.check_supported(_load(f"--config={_write(folder / 'a.yaml', text)}"))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition('field="')[2].partition('"')[0] for line in lines] == told


@pytest.mark.parametrize("path", [path for _, paths in supported.NOT_ACTED_ON for path in paths])
def test_fields_without_effect_exist(path: str) -> None:
    names = {field for field, _ in configuration.leaves(scheme.to_versioned(options.new_kubelet_configuration()))}
    pointers = {"tracing"}
    assert path in pointers or any(name == path or name.startswith(f"{path}.") for name in names)
