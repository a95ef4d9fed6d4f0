"""Keep local copies of the API server's objects up to date by watching it.

Go: k8s.io/client-go/tools/cache

A Reflector lists and watches one kind of object (listwatch.py, reflector.py). It writes the objects to a store
(store.py), to a store that pushes its whole contents at each change (undelta_store.py), or to a queue
(the_real_fifo.py). A SharedIndexInformer drains the queue into a store with indices and notifies its handlers
(controller.py, shared_informer.py).
"""

from pkg.client_go.tools.cache.controller import (
    Config,
    Controller,
    ResourceEventHandler,
    ResourceEventHandlerFuncs,
)
from pkg.client_go.tools.cache.delta_fifo import (
    DeletedFinalStateUnknown,
    Delta,
    Deltas,
    DeltaType,
    deletion_handling_meta_namespace_key_func,
)
from pkg.client_go.tools.cache.fifo import FIFOClosedError
from pkg.client_go.tools.cache.index import NAMESPACE_INDEX, Indexers, IndexFunc, meta_namespace_index_func
from pkg.client_go.tools.cache.listers import GenericLister, list_all, list_all_by_namespace
from pkg.client_go.tools.cache.listwatch import (
    ListerWatcher,
    ListWatch,
    new_filtered_list_watch_from_client,
    new_list_watch_from_client,
)
from pkg.client_go.tools.cache.reflector import (
    Reflector,
    ReflectorStore,
    VeryShortWatchError,
    WatchErrorHandler,
    default_watch_error_handler,
)
from pkg.client_go.tools.cache.shared_informer import (
    DoneChecker,
    InformerSynced,
    ResourceEventHandlerRegistration,
    SharedIndexInformer,
    wait_for,
    wait_for_cache_sync,
)
from pkg.client_go.tools.cache.store import (
    Cache,
    ExplicitKey,
    Indexer,
    KeyFunc,
    ObjectKeyError,
    ObjectName,
    Store,
    TransactionError,
    meta_namespace_key_func,
    new_indexer,
    new_store,
    object_to_name,
    split_meta_namespace_key,
)
from pkg.client_go.tools.cache.the_real_fifo import RealFIFO, ReplacedAllInfo
from pkg.client_go.tools.cache.thread_safe_store import Transaction, TransactionType
from pkg.client_go.tools.cache.undelta_store import UndeltaStore

__all__ = [
    "NAMESPACE_INDEX",
    "Cache",
    "Config",
    "Controller",
    "DeletedFinalStateUnknown",
    "Delta",
    "DeltaType",
    "Deltas",
    "DoneChecker",
    "ExplicitKey",
    "FIFOClosedError",
    "GenericLister",
    "IndexFunc",
    "Indexer",
    "Indexers",
    "InformerSynced",
    "KeyFunc",
    "ListWatch",
    "ListerWatcher",
    "ObjectKeyError",
    "ObjectName",
    "RealFIFO",
    "Reflector",
    "ReflectorStore",
    "ReplacedAllInfo",
    "ResourceEventHandler",
    "ResourceEventHandlerFuncs",
    "ResourceEventHandlerRegistration",
    "SharedIndexInformer",
    "Store",
    "Transaction",
    "TransactionError",
    "TransactionType",
    "UndeltaStore",
    "VeryShortWatchError",
    "WatchErrorHandler",
    "default_watch_error_handler",
    "deletion_handling_meta_namespace_key_func",
    "list_all",
    "list_all_by_namespace",
    "meta_namespace_index_func",
    "meta_namespace_key_func",
    "new_filtered_list_watch_from_client",
    "new_indexer",
    "new_list_watch_from_client",
    "new_store",
    "object_to_name",
    "split_meta_namespace_key",
    "wait_for",
    "wait_for_cache_sync",
]
