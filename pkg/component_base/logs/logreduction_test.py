"""Test the reduction of repeated log messages.

Go: k8s.io/component-base/logs/logreduction/logreduction_test.go
"""

from pkg.component_base.logs import logreduction


def test_repeated_message_is_passed_once_per_delay() -> None:
    now = [0.0]
    reduction = logreduction.LogReduction(60, now=lambda: now[0])
    assert reduction.should_message_be_printed("down", "a")
    assert not reduction.should_message_be_printed("down", "a")
    assert reduction.should_message_be_printed("down", "b")
    now[0] = 59
    assert not reduction.should_message_be_printed("down", "a")
    now[0] = 60
    assert reduction.should_message_be_printed("down", "a")


def test_other_message_and_clear_start_over() -> None:
    reduction = logreduction.LogReduction(60, now=lambda: 0.0)
    assert reduction.should_message_be_printed("down", "a")
    assert reduction.should_message_be_printed("slow", "a")
    assert reduction.should_message_be_printed("down", "a")
    assert not reduction.should_message_be_printed("down", "a")
    reduction.clear_id("a")
    assert reduction.should_message_be_printed("down", "a")
