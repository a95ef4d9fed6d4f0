"""Test the environment of a container: its variables, its hosts file, its hostname and its DNS configuration.

Containers write what they find into their termination message. A fixture creates all pods, and each test then checks
its own pod, so that their waits overlap.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.cluster_client import TIMEOUT, Namespace, last_terminated, terminated, waiting_reason
from framework.local_cluster import CLUSTER_DNS, Environment, LocalCluster
from framework.pod_ways import Pods
from framework.pods import Manifest, pod, shell
from framework.volumes import put_config_map, put_secret
from framework.waiting import wait_for
from kubernetes.client import CoreV1Api, V1Pod
from kubernetes.utils import parse_quantity

# A wait for a retry lasts longer, because retries come only after a back-off.
AGAIN = 2 * TIMEOUT
# This command lists all variables of the container. The shell's own list would omit names that are invalid in a shell.
ENVIRONMENT = "tr '\\0' '\\n' < /proc/1/environ"
# The hostname is the first 63 characters of this name, without a hyphen at the end.
LONG_NAME = "a-name-that-is-longer-than-a-host-name-may-be-so-that-it-is-cut--0123456789"
REFUSAL = "static pods may not reference configmaps"
SERVICE_IP, SERVICE_PORT = "10.96.7.7", 8080


def look(command: str, name: str = "main", **fields: object) -> dict[str, Any]:
    """Return a container that reports what the command prints, and ends."""
    return shell(f"{{ {command}; }} > /dev/termination-log", name, **fields)


def once(name: str, *containers: dict[str, Any], **spec: Any) -> Manifest:
    return pod(name, *containers, restartPolicy="Never", **spec)


def field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def amount(name: str, resource: str, divisor: str = "1", container: str = "") -> dict[str, Any]:
    reference = {"resource": resource, "divisor": divisor, "containerName": container}
    return {"name": name, "valueFrom": {"resourceFieldRef": reference}}


def of_map(name: str, config_map: str, key: str, **fields: object) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key, **fields}}}


def of_secret(name: str, secret: str, key: str, **fields: object) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, **fields}}}


def told(pods: Pods | Namespace, name: str, timeout: float = TIMEOUT) -> str:
    """Wait until the pod's container has ended, and return its termination message."""
    found = pods.wait_for(name, "the termination message", lambda found: terminated(found), timeout)
    ended = terminated(found)
    assert ended is not None
    assert ended.exit_code == 0, ended
    return ended.message or ""


def variables(text: str) -> dict[str, str]:
    """Parse lines of the form NAME=VALUE."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


# --- The pods ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def services(core: CoreV1Api, environment: Environment, namespace: Namespace) -> Iterator[None]:
    """Create a service in the namespace, and the API server's service, which the test API server does not create."""

    def service(name: str, ip: str, port: int) -> dict[str, Any]:
        ports = [{"name": "web", "port": port, "protocol": "TCP"}]
        return {"metadata": {"name": name}, "spec": {"type": "ClusterIP", "clusterIP": ip, "ports": ports}}

    ip = SERVICE_IP if environment.local else ""
    core.create_namespaced_service(namespace.name, service("the-web", ip, SERVICE_PORT))
    if any(found.metadata.name == "kubernetes" for found in core.list_namespaced_service("default").items):
        yield
        return
    core.create_namespaced_service("default", service("kubernetes", "10.96.0.1", 443))
    yield
    core.delete_namespaced_service("kubernetes", "default")


@pytest.fixture(scope="module", autouse=True)
def made(services: None, namespace: Namespace, both_ways: dict[str, Pods]) -> None:
    make_objects(namespace)
    for manifest in from_objects():
        namespace.create(manifest)
    for way in both_ways.values():
        for manifest in [*hosts(), *names(), *name_services(), *downward(), *others()]:
            way.create(manifest)
    saw(namespace, "changing", "first")
    put_config_map(namespace, "changing", {"key": "second"})


def make_objects(namespace: Namespace) -> None:
    maps = {
        "settings": {"PLAIN": "from map", "BOTH": "map", "REFERENCE": "$(PLAIN)", "odd.key-1": "odd"},
        "no-key": {"other": "x"},
        "changing": {"key": "first"},
    }
    for name, data in maps.items():
        put_config_map(namespace, name, data)
    put_secret(namespace, "settings", {"HIDDEN": b"from secret", "BOTH": b"secret"})


def from_objects() -> list[Manifest]:
    """List the pods that refer to API objects. Static pods must not do so."""
    sources = [
        {"configMapRef": {"name": "settings"}},
        {"secretRef": {"name": "settings"}},
        {"prefix": "P_", "configMapRef": {"name": "settings"}},
        {"configMapRef": {"name": "not-there", "optional": True}},
        {"secretRef": {"name": "not-there", "optional": True}},
    ]
    env = [
        of_map("ONE", "settings", "PLAIN"),
        of_secret("TWO", "settings", "HIDDEN"),
        of_map("NONE", "settings", "not-there", optional=True),
        of_secret("NOWHERE", "not-there", "key", optional=True),
        {"name": "BOTH", "value": "own"},
        {"name": "EXPANDED", "value": "$(ONE)/$(P_PLAIN)/$(NONE)/$$(ONE)"},
    ]
    waiting = {
        "no-map": of_map("A", "not-there", "key"),
        "no-secret": of_secret("A", "not-there", "key"),
        "no-key-in-map": of_map("A", "no-key", "key"),
        "no-key-in-secret": of_secret("A", "settings", "key"),
        "comes-later": of_map("A", "comes-later", "key"),
    }
    changing = [look("echo -n $A", env=[of_map("A", "changing", "key")])]
    return [
        once("objects", look(ENVIRONMENT, env=env, envFrom=sources)),
        *(once(name, look("echo -n $A", env=[variable])) for name, variable in waiting.items()),
        pod("changing", *changing, restartPolicy="Always"),
    ]


def hosts() -> list[Manifest]:
    aliases = [{"ip": "192.0.2.1", "hostnames": ["one.test", "uno.test"]}, {"ip": "fd00::1", "hostnames": ["two.test"]}]
    show = look("cat /etc/hosts")
    init = shell("echo 192.0.2.9 mine.test > /data/own", "init", volumeMounts=[{"name": "data", "mountPath": "/data"}])
    own = {"name": "data", "mountPath": "/etc/hosts", "subPath": "own"}
    return [
        once("hosts", show, look("cat /etc/hosts", "other"), hostname="me", subdomain="sub", hostAliases=aliases),
        once("hosts-plain", show),
        once("hosts-of-node", show, hostNetwork=True, hostAliases=aliases),
        once(
            "hosts-own",
            look("cat /etc/hosts", volumeMounts=[own]),
            initContainers=[init],
            volumes=[{"name": "data", "emptyDir": {}}],
            hostAliases=aliases,
        ),
    ]


def names() -> list[Manifest]:
    tell = look("hostname; hostname -f || true")
    return [
        once("plain-name", tell),
        once(LONG_NAME, look("hostname")),
        once("own-name", tell, hostname="me", subdomain="sub"),
        once("full-name", look("hostname"), hostname="me", subdomain="sub", setHostnameAsFQDN=True),
        once("full-name-too-long", tell, hostname="n" * 40, subdomain="s" * 40, setHostnameAsFQDN=True),
        once("name-override", look("hostname; cat /etc/hosts"), hostnameOverride="some.other.name"),
        once("name-of-node", look("hostname"), hostNetwork=True),
    ]


def name_services() -> list[Manifest]:
    show = look("cat /etc/resolv.conf")
    own = {
        "nameservers": ["192.0.2.53", "192.0.2.54"],
        "searches": ["one.test", "two.test"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
    }
    domains = [f"domain-{number}.test" for number in range(32)]
    three = ["192.0.2.53", "192.0.2.54", "192.0.2.55"]
    return [
        once("dns-cluster", show),
        once("dns-cluster-and-own", show, dnsConfig=own),
        once("dns-cluster-on-host", show, hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet"),
        once("dns-cluster-first-on-host", show, hostNetwork=True),
        once("dns-default", show, dnsPolicy="Default"),
        once("dns-none", show, dnsPolicy="None", dnsConfig=own),
        once("dns-too-much", show, dnsConfig={"nameservers": three, "searches": domains}),
    ]


def downward() -> list[Manifest]:
    env = [
        field("NAME", "metadata.name"),
        field("NAMESPACE", "metadata.namespace"),
        field("MARK", "metadata.labels['mark']"),
        field("NOTE", "metadata.annotations['note']"),
        field("NODE", "spec.nodeName"),
        field("HOST", "status.hostIP"),
        field("HOSTS", "status.hostIPs"),
        field("IP", "status.podIP"),
        field("IPS", "status.podIPs"),
        field("UID_", "metadata.uid"),
        field("ACCOUNT", "spec.serviceAccountName"),
        amount("CPU", "limits.cpu", "1m"),
        amount("CPUS", "limits.cpu"),
        amount("MEMORY", "requests.memory", "1Mi"),
        amount("OTHER", "limits.memory", "1Ki", "unlimited"),
        {"name": "CHAIN", "value": "$(NAME)-$(CPU)-$(LATER)"},
        {"name": "LATER", "value": "x"},
    ]
    resources = {"limits": {"cpu": "250m", "memory": "64Mi"}, "requests": {"memory": "32Mi"}}
    made = once("downward", look(ENVIRONMENT, env=env, resources=resources), shell("true", "unlimited"))
    made["metadata"].update(labels={"mark": "blue"}, annotations={"note": "a b"})
    return [made]


def others() -> list[Manifest]:
    data = [{"name": "data", "mountPath": "/data"}]
    key = {"volumeName": "data", "path": "app.env", "key": "GREETING"}
    write = shell("echo \"GREETING='hello, you'\" > /data/app.env", "init", volumeMounts=data)
    missing = {**key, "key": "NOT_THERE"}
    optional = {**missing, "optional": True}

    def from_file(reference: dict[str, Any]) -> dict[str, Any]:
        return look(ENVIRONMENT, env=[{"name": "A", "valueFrom": {"fileKeyRef": reference}}])

    files = {"initContainers": [write], "volumes": [{"name": "data", "emptyDir": {}}]}
    # The kubelet may not have received the service yet. So the container fails and restarts until it has the service.
    linked = look(f"env | grep -q THE_WEB && {ENVIRONMENT}")
    return [
        once("from-file", from_file(key), **files),
        once("from-file-missing", from_file(missing), **files),
        once("from-file-optional", from_file(optional), **files),
        pod("services", linked, restartPolicy="OnFailure"),
        once("no-services", look(ENVIRONMENT), enableServiceLinks=False),
    ]


# --- /etc/hosts -------------------------------------------------------------------------------------

LOOPBACK = """\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""
ALIASES = "\n# Entries added by HostAliases.\n192.0.2.1\tone.test\tuno.test\nfd00::1\ttwo.test\n"


def addresses(pods: Pods, name: str) -> list[str]:
    """List all addresses that the pod has ever had, because a pod that has ended has none."""
    found = {each.ip for version in pods.history(name) for each in version.object.status.pod_ips or []}
    return sorted(found, key=lambda ip: ":" in ip)


def test_hosts_file_has_the_pod_and_its_aliases(pods: Pods) -> None:
    text = told(pods, "hosts")
    assert text.startswith(LOOPBACK)
    assert text.endswith(ALIASES)
    own = text.removeprefix(LOOPBACK).removesuffix(ALIASES)
    lines = [re.fullmatch(r"(\S+)\tme\.sub\.(\S+)\.svc\.\S+\tme", line) for line in own.splitlines()]
    assert all(lines)
    assert [(line[1], line[2]) for line in lines if line] == [
        (ip, pods.namespace.name) for ip in addresses(pods, "hosts")
    ]


def test_hosts_file_is_the_same_in_all_containers(pods: Pods) -> None:
    text = told(pods, "hosts")
    found = pods.wait_for("hosts", "the message of the other container", lambda found: terminated(found, "other"))
    other = terminated(found, "other")
    assert other is not None and other.message == text


def test_hosts_file_of_a_pod_without_a_domain(pods: Pods) -> None:
    text = told(pods, "hosts-plain")
    own = [f"{ip}\t{pods.full_name('hosts-plain')}\n" for ip in addresses(pods, "hosts-plain")]
    assert text == LOOPBACK + "".join(own)


def test_hosts_file_on_the_nodes_network_is_the_nodes(pods: Pods, environment: Environment) -> None:
    text = told(pods, "hosts-of-node")
    header = "# Kubernetes-managed hosts file (host network).\n"
    assert text.startswith(header)
    assert text.endswith(ALIASES)
    if environment.local is not None:
        assert text == header + Path("/etc/hosts").read_text() + ALIASES


def test_hosts_file_of_the_container_itself_is_left_alone(pods: Pods) -> None:
    assert told(pods, "hosts-own") == "192.0.2.9 mine.test\n"


# --- The pod's hostname -----------------------------------------------------------------------------


def test_host_name_is_the_pods(pods: Pods) -> None:
    assert told(pods, "plain-name").splitlines()[0] == pods.full_name("plain-name")


def test_host_name_is_cut_to_63_characters(pods: Pods) -> None:
    assert told(pods, LONG_NAME) == LONG_NAME[:63].rstrip("-") + "\n"


def test_host_name_and_subdomain_of_its_own(pods: Pods) -> None:
    short, full = told(pods, "own-name").splitlines()
    assert short == "me"
    assert full.startswith(f"me.sub.{pods.namespace.name}.svc.")


def test_full_name_as_host_name(pods: Pods) -> None:
    assert told(pods, "full-name").startswith(f"me.sub.{pods.namespace.name}.svc.")


def test_full_name_that_is_too_long_for_the_kernel(pods: Pods) -> None:
    event = pods.wait_for_event(
        "full-name-too-long",
        "FailedCreatePodSandBox",
        r"Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster domain, "
        rf"FQDN n+\.s+\.{pods.namespace.name}\.svc\.\S+ is too long "
        r"\(64 characters is the max, \d+ characters requested\)",
    )
    assert event.type == "Warning"
    # The status may arrive after the event.
    found = pods.wait_for("full-name-too-long", "waits", lambda found: waiting_reason(found) == "ContainerCreating")
    assert found.status.phase == "Pending"


def test_host_name_that_overrides_all(pods: Pods) -> None:
    name, text = told(pods, "name-override").split("\n", 1)
    assert name == "some.other.name"
    assert [line.split("\t")[1:] for line in text.removeprefix(LOOPBACK).splitlines()] == [
        ["some.other.name"] for _ in addresses(pods, "name-override")
    ]


def test_host_name_on_the_nodes_network_is_the_nodes(pods: Pods, environment: Environment) -> None:
    name = told(pods, "name-of-node").strip()
    assert name
    if environment.local is not None:
        assert name == socket.gethostname()


# --- The pod's DNS configuration --------------------------------------------------------------------


def resolv_conf(text: str) -> dict[str, list[str]]:
    """Return the values of nameserver, search and options, each in the order of the file."""
    found: dict[str, list[str]] = {"nameserver": [], "search": [], "options": []}
    for line in text.splitlines():
        if (words := line.split()) and words[0] in found:
            found[words[0]] += words[1:]
    return found


def assert_of_cluster(found: dict[str, list[str]], pods: Pods, environment: Environment) -> None:
    """Check that the cluster's settings come first. Other settings may follow."""
    first, second, domain = found["search"][:3]
    assert (first, second) == (f"{pods.namespace.name}.svc.{domain}", f"svc.{domain}")
    if environment.local is not None:
        assert found["nameserver"][0] == CLUSTER_DNS
        assert domain == "cluster.local"


@pytest.mark.parametrize("name", ["dns-cluster", "dns-cluster-on-host"])
def test_name_service_of_the_cluster(pods: Pods, name: str, environment: Environment) -> None:
    found = resolv_conf(told(pods, name))
    assert_of_cluster(found, pods, environment)
    assert found["options"] == ["ndots:5"]
    if environment.local is not None:
        assert found["nameserver"] == [CLUSTER_DNS]
        assert found["search"][3:] == resolv_conf(Path("/etc/resolv.conf").read_text())["search"]


def test_own_settings_are_added_to_the_clusters(pods: Pods, environment: Environment) -> None:
    found = resolv_conf(told(pods, "dns-cluster-and-own"))
    assert_of_cluster(found, pods, environment)
    assert found["nameserver"][-2:] == ["192.0.2.53", "192.0.2.54"]
    assert found["search"][-2:] == ["one.test", "two.test"]
    assert sorted(found["options"]) == ["edns0", "ndots:2"]


def test_own_settings_alone(pods: Pods) -> None:
    found = resolv_conf(told(pods, "dns-none"))
    assert found["nameserver"] == ["192.0.2.53", "192.0.2.54"]
    assert found["search"] == ["one.test", "two.test"]
    assert sorted(found["options"]) == ["edns0", "ndots:2"]


@pytest.mark.local
@pytest.mark.parametrize("name", ["dns-default", "dns-cluster-first-on-host"])
def test_name_service_of_the_node(pods: Pods, name: str) -> None:
    own, nodes = resolv_conf(told(pods, name)), resolv_conf(Path("/etc/resolv.conf").read_text())
    assert own["nameserver"] == nodes["nameserver"][:3]
    assert own["search"] == [domain.removesuffix(".") for domain in nodes["search"] if domain != "."]
    assert sorted(own["options"]) == sorted(nodes["options"])


def test_more_than_a_resolver_can_take(pods: Pods, environment: Environment) -> None:
    found = resolv_conf(told(pods, "dns-too-much"))
    assert_of_cluster(found, pods, environment)
    assert len(found["nameserver"]) == 3
    assert len(found["search"]) == 32
    what = f"the applied nameserver line is: {' '.join(found['nameserver'])}"
    message = f"Nameserver limits were exceeded, some nameservers have been omitted, {what}"
    pods.wait_for_event("dns-too-much", "DNSConfigForming", re.escape(message))
    what = f"the applied search line is: {' '.join(found['search'])}"
    message = f"Search Line limits were exceeded, some search paths have been omitted, {what}"
    pods.wait_for_event("dns-too-much", "DNSConfigForming", re.escape(message))


# --- Variables --------------------------------------------------------------------------------------


def test_variables_of_the_downward_api(pods: Pods, environment: Environment) -> None:
    found = variables(told(pods, "downward"))
    pod = pods.history("downward")[-1].object
    name = pods.full_name("downward")
    assert found["NAME"] == name
    assert found["NAMESPACE"] == pods.namespace.name
    assert found["UID_"] == pods.uid("downward")
    assert (found["MARK"], found["NOTE"]) == ("blue", "a b")
    assert found["NODE"] == environment.node
    assert found["HOST"] == pod.status.host_ip
    assert found["HOSTS"] == ",".join(each.ip for each in pod.status.host_ips)
    assert found["IP"] == addresses(pods, "downward")[0]
    assert sorted(found["IPS"].split(",")) == sorted(addresses(pods, "downward"))
    assert found["ACCOUNT"] == ("default" if pods.way == "api" else "")


def test_variables_of_resources(core: CoreV1Api, pods: Pods, environment: Environment) -> None:
    found = variables(told(pods, "downward"))
    assert (found["CPU"], found["CPUS"], found["MEMORY"]) == ("250", "1", "32")
    allocatable = parse_quantity(core.read_node(environment.node).status.allocatable["memory"])
    assert found["OTHER"] == str(-(-allocatable // 1024)), (
        "without a limit the value is not the node's allocatable memory"
    )
    assert found["CHAIN"] == f"{pods.full_name('downward')}-250-$(LATER)"


def test_variables_of_config_maps_and_secrets(namespace: Namespace) -> None:
    found = variables(told(namespace, "objects"))
    expected = {
        "PLAIN": "from map",
        "HIDDEN": "from secret",
        "BOTH": "own",
        "REFERENCE": "$(PLAIN)",
        "odd.key-1": "odd",
        "P_PLAIN": "from map",
        "P_BOTH": "map",
        "P_REFERENCE": "$(PLAIN)",
        "P_odd.key-1": "odd",
        "ONE": "from map",
        "TWO": "from secret",
        "EXPANDED": "from map/from map/$(NONE)/$(ONE)",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not {"NONE", "NOWHERE"} & found.keys()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-map", 'configmap "not-there" not found'),
        ("no-secret", 'secret "not-there" not found'),
        ("no-key-in-map", "couldn't find key key in ConfigMap {namespace}/no-key"),
        ("no-key-in-secret", "couldn't find key key in Secret {namespace}/settings"),
    ],
)
def test_missing_values_keep_a_container_from_starting(namespace: Namespace, name: str, message: str) -> None:
    message = message.format(namespace=namespace.name)
    found = namespace.wait_for(name, "waits", lambda found: waiting_reason(found) == "CreateContainerConfigError")
    waiting = found.status.container_statuses[0].state.waiting
    assert waiting is not None and waiting.message == message
    namespace.wait_for_event(name, "Failed", f"Error: {re.escape(message)}", "spec.containers{main}")


def test_container_starts_when_what_it_misses_is_there(namespace: Namespace) -> None:
    namespace.wait_for_seen("comes-later", "waits", lambda found: waiting_reason(found) == "CreateContainerConfigError")
    put_config_map(namespace, "comes-later", {"key": "there"})
    assert told(namespace, "comes-later", AGAIN) == "there"


def saw(namespace: Namespace, name: str, text: str) -> None:
    """Wait until a container of the pod has reported the text. The container restarts after growing delays."""

    def has(found: V1Pod) -> bool:
        ends = (state for state in (terminated(found), last_terminated(found)) if state is not None)
        return any(ended.message == text for ended in ends)

    namespace.wait_for_seen(name, f"saw {text!r}", has, AGAIN)


def test_next_start_finds_what_has_changed(namespace: Namespace) -> None:
    saw(namespace, "changing", "second")


def test_variable_from_a_file(pods: Pods) -> None:
    assert variables(told(pods, "from-file"))["A"] == "hello, you"


def test_variable_that_a_file_does_not_have(pods: Pods) -> None:
    assert "A" not in variables(told(pods, "from-file-optional"))
    pods.wait_for("from-file-missing", "waits", lambda found: waiting_reason(found) == "CreateContainerConfigError")
    pods.wait_for_event(
        "from-file-missing", "Failed", 'Error: environment variable key "NOT_THERE" not found in file ".*/app.env"'
    )


def test_variables_of_services(core: CoreV1Api, pods: Pods) -> None:
    found = variables(told(pods, "services"))
    service = core.read_namespaced_service("the-web", pods.namespace.name)
    ip, url = service.spec.cluster_ip, f"tcp://{service.spec.cluster_ip}:{SERVICE_PORT}"
    expected = {
        "THE_WEB_SERVICE_HOST": ip,
        "THE_WEB_SERVICE_PORT": "8080",
        "THE_WEB_SERVICE_PORT_WEB": "8080",
        "THE_WEB_PORT": url,
        "THE_WEB_PORT_8080_TCP": url,
        "THE_WEB_PORT_8080_TCP_PROTO": "tcp",
        "THE_WEB_PORT_8080_TCP_PORT": "8080",
        "THE_WEB_PORT_8080_TCP_ADDR": ip,
    }
    assert {name: value for name, value in found.items() if name.startswith("THE_WEB")} == expected
    assert found["KUBERNETES_SERVICE_HOST"]


def test_pod_that_does_not_want_services_has_those_of_the_api_server(pods: Pods) -> None:
    found = variables(told(pods, "no-services"))
    assert found["KUBERNETES_SERVICE_HOST"] and found["KUBERNETES_SERVICE_PORT"]
    assert not [name for name in found if name.startswith("THE_WEB")]


@pytest.mark.local
def test_static_pod_may_not_refer_to_objects(namespace: Namespace, local: LocalCluster) -> None:
    manifest = once("refers", look(ENVIRONMENT, env=[of_map("A", "settings", "PLAIN")]))
    manifest["metadata"]["namespace"] = namespace.name
    local.kubelet.write(manifest)
    try:
        wait_for("the refusal", lambda: REFUSAL in local.kubelet.log.read_text(), TIMEOUT, local.kubelet.end_of_log)
        assert namespace.pods.latest(local.kubelet.full_name("refers")) is None
    finally:
        local.kubelet.remove("refers")
