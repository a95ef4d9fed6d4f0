"""Test the trust anchors.

Go: pkg/kubelet/clustertrustbundle/clustertrustbundle_manager_test.go
"""

from __future__ import annotations

import base64

import pytest
from framework.waiting import wait_for

from kubelet import clustertrustbundle
from pkg import golang
from pkg.api.certificates import v1beta1 as certificatesv1beta1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import informers
from pkg.client_go.kubernetes.testing import FakeClientset


def pem(*contents: str, kind: str = "CERTIFICATE") -> str:
    """Return PEM blocks with these base64 contents."""
    return "".join(f"-----BEGIN {kind}-----\n{content}\n-----END {kind}-----\n" for content in contents)


ROOT1, ROOT2, ROOT3, ROOT4 = "cm9vdDE=", "cm9vdDI=", "cm9vdDM=", "cm9vdDQ="


def bundle(name: str, content: str, signer: str = "", **labels: str) -> certificatesv1beta1.ClusterTrustBundle:
    return certificatesv1beta1.ClusterTrustBundle(
        metadata=metav1.ObjectMeta(name=name, labels=labels),
        spec=certificatesv1beta1.ClusterTrustBundleSpec(signer_name=signer, trust_bundle=content),
    )


def blocks(content: bytes) -> set[str]:
    return {line for line in content.decode().splitlines() if not line.startswith("-----")}


def lazy(ctx: golang.Context, *objects: object) -> tuple[FakeClientset, clustertrustbundle.LazyInformerManager]:
    client = FakeClientset(*objects)
    return client, clustertrustbundle.LazyInformerManager(ctx, client)


def test_before_the_first_list() -> None:
    client = FakeClientset()
    bundles = informers.SharedInformerFactory(client, 0).certificates_v1beta1.cluster_trust_bundles()
    manager = clustertrustbundle.InformerManager(bundles.informer(), bundles.lister())
    with pytest.raises(clustertrustbundle.UnknownBundlesError, match="informer has not yet synced"):
        manager.get_trust_anchors_by_name("foo", False)
    with pytest.raises(clustertrustbundle.UnknownBundlesError, match="informer has not yet synced"):
        manager.get_trust_anchors_by_signer("foo", None, True)


def test_by_name(ctx: golang.Context) -> None:
    _, manager = lazy(ctx, bundle("one", pem(ROOT1)), bundle("two", pem(ROOT2, ROOT1, ROOT2)))
    assert manager.get_trust_anchors_by_name("one", False) == pem(ROOT1).encode()
    two = manager.get_trust_anchors_by_name("two", False)
    assert blocks(two) == {ROOT1, ROOT2} and len(two) == len(pem(ROOT1, ROOT2))
    assert manager.get_trust_anchors_by_name("two", False) == two
    with pytest.raises(
        apierrors.StatusError,
        match=r'^while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "none" not found$',
    ):
        manager.get_trust_anchors_by_name("none", False)
    assert manager.get_trust_anchors_by_name("none", True) == b""


def test_changes_are_seen(ctx: golang.Context) -> None:
    client, manager = lazy(ctx, bundle("one", pem(ROOT1)))
    assert blocks(manager.get_trust_anchors_by_name("one", False)) == {ROOT1}
    client.add(bundle("one", pem(ROOT2)))
    wait_for("the bundle's new content", lambda: blocks(manager.get_trust_anchors_by_name("one", False)) == {ROOT2})
    client.remove(bundle("one", ""))
    wait_for("the bundle is gone", lambda: manager.get_trust_anchors_by_name("one", True) == b"")


@pytest.mark.parametrize(
    ("signer", "selector", "expected"),
    [
        pytest.param("foo.bar/a", {"label": "a"}, {ROOT1, ROOT2}, id="two bundles"),
        pytest.param("foo.bar/a", {"label": "b"}, {ROOT3}, id="another label"),
        pytest.param("foo.bar/a", {}, {ROOT1, ROOT2, ROOT3}, id="all of a signer"),
        pytest.param("foo.bar/b", {"label": "a"}, {ROOT4}, id="another signer"),
        pytest.param("foo.bar/b", {"label": "b"}, set(), id="none of that label"),
        pytest.param("foo.bar/a", None, set(), id="no selector"),
        pytest.param("foo.bar/c", {}, set(), id="no such signer"),
    ],
)
def test_by_signer(ctx: golang.Context, signer: str, selector: dict[str, str] | None, expected: set[str]) -> None:
    _, manager = lazy(
        ctx,
        bundle("foo.bar:a:1", pem(ROOT1), "foo.bar/a", label="a"),
        bundle("foo.bar:a:2", pem(ROOT2), "foo.bar/a", label="a"),
        bundle("foo.bar:a:3", pem(ROOT3), "foo.bar/a", label="b"),
        bundle("foo.bar:b:1", pem(ROOT4), "foo.bar/b", label="a"),
    )
    wanted = metav1.LabelSelector(match_labels=selector) if selector is not None else None
    assert blocks(manager.get_trust_anchors_by_signer(signer, wanted, True)) == expected
    if not expected:
        with pytest.raises(LookupError, match="matched zero ClusterTrustBundles"):
            manager.get_trust_anchors_by_signer(signer, wanted, False)


def test_order_of_anchors_stays_when_another_bundle_changes(ctx: golang.Context) -> None:
    anchors = [base64.b64encode(f"root {number}".encode()).decode() for number in range(20)]
    client, manager = lazy(ctx, bundle("s:a", pem(*anchors), "s", label="a"), bundle("s:b", pem(ROOT1), "s", label="b"))

    def labelled(value: str) -> bytes:
        return manager.get_trust_anchors_by_signer("s", metav1.LabelSelector(match_labels={"label": value}), False)

    before = labelled("a")
    assert blocks(before) == set(anchors)
    client.add(bundle("s:b", pem(ROOT2), "s", label="b"))
    wait_for("the other bundle's new content", lambda: blocks(labelled("b")) == {ROOT2})
    assert labelled("a") == before


def test_selectors_that_make_no_sense(ctx: golang.Context) -> None:
    _, manager = lazy(ctx)
    labels = {f"key-{i}": "v" * 60 for i in range(2000)}
    with pytest.raises(ValueError, match=r"label selector length \(\d+\) is larger than 102400"):
        manager.get_trust_anchors_by_signer("s", metav1.LabelSelector(match_labels=labels), False)
    with pytest.raises(ValueError, match="while parsing label selector"):
        manager.get_trust_anchors_by_signer("s", metav1.LabelSelector(match_labels={"-": "x"}), False)


def test_what_is_no_certificate_is_passed_over(ctx: golang.Context) -> None:
    content = "text\n" + pem("!!!") + pem(f"Header: value\n\n{ROOT1}") + "-----BEGIN CERTIFICATE-----\ncut"
    _, manager = lazy(ctx, bundle("one", content))
    assert manager.get_trust_anchors_by_name("one", False) == pem(ROOT1).encode()


def test_lines_may_end_as_on_other_systems(ctx: golang.Context) -> None:
    content = (pem(ROOT1) + pem(f"Header: value\n\n{ROOT2} ")).replace("\n", "\r\n")
    _, manager = lazy(ctx, bundle("one", content))
    assert blocks(manager.get_trust_anchors_by_name("one", False)) == {ROOT1, ROOT2}


def test_nothing_is_asked_before_it_is_needed(ctx: golang.Context) -> None:
    client, manager = lazy(ctx)
    assert client.actions() == []
    manager.get_trust_anchors_by_name("one", True)
    manager.get_trust_anchors_by_name("two", True)
    assert [action.verb for action in client.actions(resource="clustertrustbundles")].count("list") == 1


def test_cluster_without_the_api(ctx: golang.Context) -> None:
    client, manager = lazy(ctx)
    client.unserved_versions.add("certificates.k8s.io/v1beta1")
    with pytest.raises(LookupError, match="not supported in static kubelet mode"):
        manager.get_trust_anchors_by_name("one", True)
    with pytest.raises(LookupError, match="not supported in static kubelet mode"):
        manager.get_trust_anchors_by_signer("one", None, True)


def test_api_server_that_does_not_answer_is_asked_again(ctx: golang.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    client, manager = lazy(ctx, bundle("one", pem(ROOT1)))
    with monkeypatch.context() as patch:
        error = apierrors.new_service_unavailable("down")

        def fail(*_: object) -> object:
            raise error

        patch.setattr(client, "server_resources_for_group_version", fail)
        with pytest.raises(clustertrustbundle.UnknownBundlesError, match=r"failed to ensure informer manager.*down"):
            manager.get_trust_anchors_by_name("one", True)
    assert blocks(manager.get_trust_anchors_by_name("one", True)) == {ROOT1}
