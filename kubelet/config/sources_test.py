"""Test the record of seen sources."""

from kubelet import config


def test_all_ready() -> None:
    asked: list[set[str]] = []

    def ready(seen: set[str]) -> bool:
        asked.append(seen)
        return {"file", "api"} <= seen

    sources: config.SourcesReady = config.SourcesImpl(ready)
    assert not sources.all_ready()
    sources.add_source("file")
    assert not sources.all_ready()
    sources.add_source("api")
    assert sources.all_ready()
    assert asked == [set(), {"file"}, {"file", "api"}]
