"""Compute nameservers, search domains and options of a pod from its DNS policy and the node's resolv.conf.

Go: pkg/kubelet/network/dns/dns.go
"""

from __future__ import annotations

import enum
import ipaddress
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet.util import format
from pkg import golang, klog
from pkg.api.core import v1
from pkg.client_go.tools import record

_DEFAULT_DNS_OPTIONS = ["ndots:5"]
_MAX_RESOLV_CONF_LENGTH = 10 << 20

# These are limits of the C library's resolver.
MAX_DNS_NAMESERVERS = 3
MAX_DNS_SEARCH_PATHS = 32
MAX_DNS_SEARCH_LIST_CHARS = 2048
_DNS1123_SUBDOMAIN_MAX_LENGTH = 253

_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class PodDNSType(enum.Enum):
    """Represent the settings on which a pod's configuration is based."""

    CLUSTER = enum.auto()
    HOST = enum.auto()
    NONE = enum.auto()


class ResolvConfError(ValueError):
    """Signal that the node's resolv.conf cannot be used."""


class Configurer:
    """Configure DNS for pods.

    This class is thread-safe, because it never changes after its construction.

    Go: Configurer
    """

    def __init__(
        self,
        recorder: record.EventRecorder,
        node_ref: v1.ObjectReference,
        node_ips: Sequence[_IPAddress],
        cluster_dns: Sequence[_IPAddress],
        cluster_domain: str,
        resolver_config: str,
    ) -> None:
        self._recorder = recorder
        self._node_ref = node_ref
        self._node_ips = node_ips
        self._cluster_dns = cluster_dns
        self.cluster_domain = cluster_domain
        # Pods' configuration is based on this resolv.conf. "" means that pods get nothing from the node.
        self.resolver_config = resolver_config

    def get_pod_dns(self, ctx: golang.Context, pod: v1.Pod) -> runtimeapi.DNSConfig:
        """Return the pod's DNS settings. Raise OSError and ResolvConfError."""
        config = _get_dns_config(self.resolver_config)
        match self._pod_dns_type(pod):
            case PodDNSType.NONE:
                config = runtimeapi.DNSConfig()
            case PodDNSType.CLUSTER:
                config = self._cluster_config(config, pod)
            case PodDNSType.HOST:
                config = self._host_config(config)
        if pod.spec.dns_config is not None:
            config = _append_dns_config(config, pod.spec.dns_config)
        return self._form_dns_config_fits_limits(config, pod)

    def _pod_dns_type(self, pod: v1.Pod) -> PodDNSType:
        try:
            dns_type = get_pod_dns_type(pod)
        except ValueError as err:
            klog.error_s(
                err,
                "Failed to get DNS type for pod. Falling back to DNSClusterFirst policy.",
                pod=klog.kobj(pod),
            )
            dns_type = PodDNSType.CLUSTER
        if dns_type is not PodDNSType.CLUSTER or self._cluster_dns:
            return dns_type
        message = (
            "kubelet does not have ClusterDNS IP configured and cannot create Pod using"
            f' "{v1.DNS_CLUSTER_FIRST}" policy. Falling back to "{v1.DNS_DEFAULT}" policy.'
        )
        self._recorder.event(self._node_ref, v1.EVENT_TYPE_WARNING, "MissingClusterDNS", message)
        pod_message = f'pod: "{format.pod(pod)}". {message}'
        self._recorder.event(pod, v1.EVENT_TYPE_WARNING, "MissingClusterDNS", pod_message)
        return PodDNSType.HOST

    def _cluster_config(self, host: runtimeapi.DNSConfig, pod: v1.Pod) -> runtimeapi.DNSConfig:
        """Return settings with only the cluster's servers, which themselves forward to the node's servers."""
        return runtimeapi.DNSConfig(
            servers=[str(ip) for ip in self._cluster_dns],
            searches=self._generate_searches_for_dns_cluster_first(host.searches, pod),
            options=_DEFAULT_DNS_OPTIONS,
        )

    def _host_config(self, host: runtimeapi.DNSConfig) -> runtimeapi.DNSConfig:
        """Return the node's settings. Without a file, return settings that prevent the runtime's default."""
        if self.resolver_config:
            return host
        loopbacks = ["::1" if ip.version == 6 else "127.0.0.1" for ip in self._node_ips]
        return runtimeapi.DNSConfig(servers=loopbacks or ["127.0.0.1"], searches=["."])

    def _generate_searches_for_dns_cluster_first(self, host_searches: Iterable[str], pod: v1.Pod) -> list[str]:
        domain = self.cluster_domain
        if not domain:
            return list(host_searches)
        cluster = [f"{pod.metadata.namespace}.svc.{domain}", f"svc.{domain}", domain]
        return _omit_duplicates([*cluster, *host_searches])

    def _form_dns_config_fits_limits(self, config: runtimeapi.DNSConfig, pod: v1.Pod) -> runtimeapi.DNSConfig:
        return runtimeapi.DNSConfig(
            servers=self._form_dns_nameservers_fits_limits(list(config.servers), pod),
            searches=self._form_dns_search_fits_limits(list(config.searches), pod),
            options=config.options,
        )

    def _form_dns_search_fits_limits(self, searches: list[str], pod: v1.Pod) -> list[str]:
        # Some C libraries abort on a longer search domain.
        fitting = [s for s in searches[:MAX_DNS_SEARCH_PATHS] if len(s) <= _DNS1123_SUBDOMAIN_MAX_LENGTH]
        while len(" ".join(fitting)) > MAX_DNS_SEARCH_LIST_CHARS:
            fitting.pop()
        if len(fitting) < len(searches):
            message = (
                "Search Line limits were exceeded, some search paths have been omitted, the applied search"
                f" line is: {' '.join(fitting)}"
            )
            self._warn(pod, message, "Search Line limits exceeded")
        return fitting

    def _form_dns_nameservers_fits_limits(self, nameservers: list[str], pod: v1.Pod) -> list[str]:
        fitting = nameservers[:MAX_DNS_NAMESERVERS]
        if len(fitting) < len(nameservers):
            message = (
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver"
                f" line is: {' '.join(fitting)}"
            )
            self._warn(pod, message, "Nameserver limits exceeded")
        return fitting

    def _warn(self, pod: v1.Pod, message: str, log: str) -> None:
        self._recorder.event(pod, v1.EVENT_TYPE_WARNING, "DNSConfigForming", message)
        klog.error_s(ValueError(message), log)

    def check_limits_for_resolv_conf(self) -> None:
        """Record an event of the node if its resolv.conf exceeds the limits for pods."""
        if not self.resolver_config:
            return
        try:
            _, searches, _ = parse_resolv_conf(_read_resolv_conf(self.resolver_config))
        except (OSError, ResolvConfError) as err:
            self._recorder.event(self._node_ref, v1.EVENT_TYPE_WARNING, "CheckLimitsForResolvConf", str(err))
            klog.v(4).info_s("Check limits for resolv.conf failed", err=err)
            return
        fault = self._resolv_conf_fault(searches)
        if fault:
            self._recorder.event(self._node_ref, v1.EVENT_TYPE_WARNING, "CheckLimitsForResolvConf", fault)
            klog.v(4).info_s("Check limits for resolv.conf failed", eventlog=fault)

    def _resolv_conf_fault(self, searches: Sequence[str]) -> str:
        # The cluster's three search domains come first.
        limit = MAX_DNS_SEARCH_PATHS - (3 if self.cluster_domain else 0)
        file = self.resolver_config
        if len(searches) > limit:
            return f"Resolv.conf file '{file}' contains search line consisting of more than {limit} domains!"
        if any(len(search) > _DNS1123_SUBDOMAIN_MAX_LENGTH for search in searches):
            return (
                f'Resolv.conf file "{file}" contains a search path which length is more than allowed'
                f" {_DNS1123_SUBDOMAIN_MAX_LENGTH} chars!"
            )
        if len(" ".join(searches)) > MAX_DNS_SEARCH_LIST_CHARS:
            return (
                f"Resolv.conf file '{file}' contains search line which length is more than allowed"
                f" {MAX_DNS_SEARCH_LIST_CHARS} chars!"
            )
        return ""

    def setup_dns_in_containerized_mounter(self, mounter_path: str) -> None:
        """Write the cluster's nameservers and the node's search domains for a mounter in a chroot."""
        path = Path(mounter_path.removesuffix("/mounter"), "rootfs", "etc", "resolv.conf")
        text = "".join(f"nameserver {ip}\n" for ip in self._cluster_dns)
        try:
            if self.resolver_config:
                _, searches, _ = parse_resolv_conf(_read_resolv_conf(self.resolver_config))
                text += " ".join(["search", *searches]) + "\n"
        except (OSError, ResolvConfError) as err:
            klog.error_s(err, "Could not open resolverConf file")
        try:
            path.write_text(text)
            os.chmod(path, 0o600)
        except OSError as err:
            klog.error_s(err, "Could not write dns nameserver in the file", path=str(path))


def get_pod_dns_type(pod: v1.Pod) -> PodDNSType:
    """Return the type for the dnsPolicy. Raise ValueError for an unknown policy.

    With ClusterFirst, a pod in the host's network gets the host's settings.
    """
    match pod.spec.dns_policy:
        case v1.DNS_NONE:
            return PodDNSType.NONE
        case v1.DNS_CLUSTER_FIRST_WITH_HOST_NET:
            return PodDNSType.CLUSTER
        case v1.DNS_CLUSTER_FIRST if not kubecontainer.is_host_network_pod(pod):
            return PodDNSType.CLUSTER
        case v1.DNS_CLUSTER_FIRST | v1.DNS_DEFAULT:
            return PodDNSType.HOST
    raise ValueError(f"invalid DNSPolicy={pod.spec.dns_policy}")


def parse_resolv_conf(text: str) -> tuple[list[str], list[str], list[str]]:
    """Return the nameservers, search domains and options.

    Nameservers and options accumulate over lines, but only the last search line counts. Raise ResolvConfError.
    """
    nameservers: list[str] = []
    searches: list[str] = []
    # The options are keyed by name, so that a later value replaces an earlier one.
    options: dict[str, str] = {}
    for line in text.split("\n"):
        match line.split():
            case [first, *_] if first.startswith("#"):
                continue
            case ["nameserver"]:
                raise ResolvConfError("nameserver list is empty ")
            case ["nameserver", server, *_]:
                nameservers.append(server)
            case ["search", *domains]:
                # A domain with and without the trailing dot counts once against the limits.
                searches = [domain.removesuffix(".") for domain in domains if domain != "."]
            case ["options", *values]:
                options |= {value.split(":", 1)[0]: value for value in values}
    return nameservers, searches, list(options.values())


def _read_resolv_conf(path: str) -> str:
    with Path(path).open("rb") as f:
        data = f.read(_MAX_RESOLV_CONF_LENGTH + 1)
    if len(data) > _MAX_RESOLV_CONF_LENGTH:
        raise ResolvConfError("the read limit is reached")
    return data.decode(errors="replace")


def _get_dns_config(resolver_config_file: str) -> runtimeapi.DNSConfig:
    if not resolver_config_file:
        return runtimeapi.DNSConfig()
    try:
        servers, searches, options = parse_resolv_conf(_read_resolv_conf(resolver_config_file))
    except ResolvConfError as err:
        error = ResolvConfError(f"Encountered error while parsing resolv conf file. Error: {err}")
        klog.error_s(error, "Could not parse resolv conf file.")
        raise error from err
    except OSError as err:
        klog.error_s(err, "Could not open resolv conf file.")
        raise
    return runtimeapi.DNSConfig(servers=servers, searches=searches, options=options)


def _omit_duplicates(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _append_dns_config(config: runtimeapi.DNSConfig, own: v1.PodDNSConfig) -> runtimeapi.DNSConfig:
    """Append the settings of the pod's own dnsConfig."""
    return runtimeapi.DNSConfig(
        servers=_omit_duplicates([*config.servers, *own.nameservers]),
        searches=_omit_duplicates([*config.searches, *own.searches]),
        options=_merge_dns_options(config.options, own.options),
    )


def _merge_dns_options(options: Iterable[str], own: Iterable[v1.PodDNSConfigOption]) -> list[str]:
    """Merge options by name. The pod's value wins."""
    merged: dict[str, str] = {}
    for option in options:
        name, _, value = option.partition(":")
        merged[name] = value
    for o in own:
        merged[o.name] = o.value or ""
    return [f"{name}:{value}" if value else name for name, value in merged.items()]
