"""Find out whether a client can start a watch with the existing objects.

Go: k8s.io/client-go/util/watchlist
"""

from __future__ import annotations


def does_client_not_support_watch_list_semantics(client: object) -> bool:
    """Report whether the client declares that it cannot do so, with is_watch_list_semantics_unsupported.

    A fake that ignores the option would never send the bookmark that ends the existing objects, and its caller would
    wait forever.
    """
    unsupported = getattr(client, "is_watch_list_semantics_unsupported", None)
    return unsupported is not None and bool(unsupported())
