"""Whether a client can begin a watch with the existing objects.

Go: k8s.io/client-go/util/watchlist
"""

from __future__ import annotations


def does_client_not_support_watch_list_semantics(client: object) -> bool:
    """Whether the client says of itself that it cannot, by a method is_watch_list_semantics_unsupported.

    A fake that ignores the option would never send the bookmark that ends the existing objects, and whoever
    asked would wait for it.
    """
    unsupported = getattr(client, "is_watch_list_semantics_unsupported", None)
    return unsupported is not None and bool(unsupported())
