"""Fetch lists in pages.

Go: k8s.io/client-go/tools/pager
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import msgspec

from pkg import golang
from pkg.apimachinery import watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

DEFAULT_PAGE_SIZE = 500
# `MAX_PAGES` is the maximum number of pages in one list.
MAX_PAGES = 2000


class Page(Protocol[T_co]):
    """Define what a list call returns."""

    @property
    def metadata(self) -> metav1.ListMeta: ...

    @property
    def items(self) -> Sequence[T_co]: ...

    @property
    def undecodable(self) -> Sequence[watch.Undecodable]:
        """Return the objects that exist but are missing in `items` because they could not be decoded."""
        ...


@dataclass(frozen=True)
class List(Generic[T]):
    """Hold all pages as one list."""

    metadata: metav1.ListMeta
    items: builtins.list[T]
    undecodable: builtins.list[watch.Undecodable] = field(default_factory=builtins.list)


@dataclass(frozen=True)
class PagedList(Generic[T]):
    """Hold all objects as one page."""

    page: Page[T]
    # `paginated` is True if the objects arrived in more than one page.
    paginated: bool


@dataclass
class ListPager(Generic[T]):
    """Fetch a list page by page with page_fn."""

    page_fn: Callable[[golang.Context, metav1.ListOptions], Page[T]]
    page_size: int = DEFAULT_PAGE_SIZE
    """`page_size` is the number of objects per page if the options set no limit; 0 means no limit."""

    def list(self, ctx: golang.Context, options: metav1.ListOptions) -> PagedList[T]:
        """Return all objects.

        If the version of the first page expires before the last page is read, the pager requests the whole list again
        without pages. Raise ctx.err(), the exceptions of page_fn, and ValueError for a list of more than MAX_PAGES
        pages.
        """
        options = msgspec.structs.replace(options, limit=options.limit or self.page_size)
        page = first = self.page_fn(ctx, options)
        if not first.metadata.continue_:
            return PagedList(first, paginated=False)
        items, undecodable = [*first.items], [*first.undecodable]
        following = msgspec.structs.replace(options, resource_version="", resource_version_match="")
        pages = 1
        while continue_ := page.metadata.continue_:
            pages += 1
            if pages > MAX_PAGES:
                raise ValueError(f"the list has more than {MAX_PAGES} pages")
            ctx.raise_if_done()
            try:
                page = self.page_fn(ctx, msgspec.structs.replace(following, continue_=continue_))
            except apierrors.StatusError as expired:
                if not apierrors.is_resource_expired(expired):
                    raise
                whole = self.page_fn(ctx, msgspec.structs.replace(options, limit=0))
                return PagedList(whole, paginated=True)
            items += page.items
            undecodable += page.undecodable
        metadata = metav1.ListMeta(resource_version=first.metadata.resource_version)
        return PagedList(List(metadata, items, undecodable), paginated=True)
