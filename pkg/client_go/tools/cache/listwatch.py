"""List and watch one kind of object.

Go: k8s.io/client-go/tools/cache/listwatch.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from pkg import golang
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.util import watchlist

if TYPE_CHECKING:
    from pkg.apimachinery import watch
    from pkg.client_go.tools.pager import Page

T = TypeVar("T")


class ListerWatcher(Protocol[T]):
    """Define how to list and watch one kind of object.

    When ctx ends, both calls end at once and raise an exception of any kind.
    """

    def list(self, ctx: golang.Context, options: metav1.ListOptions) -> Page[T]:
        """Return one page of the objects with its resource version, or raise the API server's error."""
        ...

    def watch(self, ctx: golang.Context, options: metav1.ListOptions) -> watch.Interface[T]:
        """Start a watch, which the caller must stop, or raise the API server's error."""
        ...


@dataclass(frozen=True)
class ListWatch(Generic[T]):
    """Implement ListerWatcher with two functions; `client` is the client that they call."""

    list_func: Callable[[golang.Context, metav1.ListOptions], Page[T]]
    watch_func: Callable[[golang.Context, metav1.ListOptions], watch.Interface[T]]
    client: object = None

    def list(self, ctx: golang.Context, options: metav1.ListOptions) -> Page[T]:
        return self.list_func(ctx, options)

    def watch(self, ctx: golang.Context, options: metav1.ListOptions) -> watch.Interface[T]:
        return self.watch_func(ctx, options)

    def is_watch_list_semantics_unsupported(self) -> bool:
        """Report whether the client cannot start a watch with the existing objects, as is the case for fakes."""
        return watchlist.does_client_not_support_watch_list_semantics(self.client)


def new_list_watch_from_client(client: ListerWatcher[T], field_selector: str) -> ListWatch[T]:
    """List and watch the resource of a kubernetes.ResourceClient, restricted by a field selector ("" selects all)."""

    def restrict(options: metav1.ListOptions) -> metav1.ListOptions:
        return msgspec.structs.replace(options, field_selector=field_selector)

    return new_filtered_list_watch_from_client(client, restrict)


def new_filtered_list_watch_from_client(
    client: ListerWatcher[T], options_modifier: Callable[[metav1.ListOptions], metav1.ListOptions]
) -> ListWatch[T]:
    """List and watch with options that options_modifier changes.

    ListOptions are frozen, so the modifier returns new ones.
    """
    return ListWatch(
        lambda ctx, options: client.list(ctx, options_modifier(options)),
        lambda ctx, options: client.watch(ctx, options_modifier(options)),
        client,
    )
