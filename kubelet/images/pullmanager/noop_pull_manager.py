"""Keep no pull records, so that every pod may use every present image.

Go: pkg/kubelet/images/pullmanager/noop_pull_manager.go
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kubelet.images.pullmanager.interfaces import GetPodCredentials, ImagePullCredentials
from pkg import golang


class NoopImagePullManager:
    def record_pull_intent(self, image: str) -> None:
        pass

    def record_image_pulled(
        self, ctx: golang.Context, image: str, image_ref: str, credentials: ImagePullCredentials
    ) -> None:
        pass

    def record_image_pull_failed(self, ctx: golang.Context, image: str) -> None:
        pass

    def must_attempt_image_pull(
        self, ctx: golang.Context, image: str, image_ref: str, get_pod_credentials: GetPodCredentials
    ) -> bool:
        return False

    def prune_unknown_records(self, ctx: golang.Context, image_list: Iterable[str], until: datetime) -> None:
        pass
