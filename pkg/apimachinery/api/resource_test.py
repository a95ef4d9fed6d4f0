"""Test quantities."""

import weakref

import pytest

from pkg.apimachinery.api import resource


@pytest.mark.parametrize(
    ("text", "canonical", "value", "milli"),
    [
        ("0", "0", 0, 0),
        ("100m", "100m", 1, 100),
        ("1.5", "1500m", 2, 1500),
        ("1000m", "1", 1, 1000),
        ("1024", "1024", 1024, 1024000),
        ("1Ki", "1Ki", 1024, 1024000),
        ("1.5Gi", "1536Mi", 1610612736, 1610612736000),
        ("0.5Ki", "512", 512, 512000),
        ("128974848", "128974848", 128974848, 128974848000),
        ("129e6", "129e6", 129000000, 129000000000),
        ("9E", "9E", 9 * 10**18, 9 * 10**21),
        ("2e3", "2e3", 2000, 2000000),
        ("-1500m", "-1500m", -2, -1500),
        ("1n", "1n", 1, 1),
        ("0.1n", "1n", 1, 1),
        (".5", "500m", 1, 500),
        ("5.", "5", 5, 5000),
        ("1000k", "1M", 10**6, 10**9),
        ("1024Mi", "1Gi", 2**30, 2**30 * 1000),
        ("0" * 10_000 + "1", "1", 1, 1000),
        ("1." + "0" * 10_000, "1", 1, 1000),
        ("1." + "0" * 10_000 + "1", "1000000001n", 2, 1001),
        ("1" * 20 + "." + "1" * 10_000 + "n", "11111111111111111112n", 11111111112, 11111111111112),
        ("9" * 10_000, "9223372036854775807", 2**63 - 1, (2**63 - 1) * 1000),
        ("-" + "9" * 10_000, "-9223372036854775807", 1 - 2**63, (1 - 2**63) * 1000),
        ("1e999999999", "9223372036854775807", 2**63 - 1, (2**63 - 1) * 1000),
        ("1e-999999999", "1e-9", 1, 1),
        ("0e999999999", "0", 0, 0),
        ("0" * 10_000 + "e999999999", "0", 0, 0),
    ],
)
def test_parse(text: str, canonical: str, value: int, milli: int) -> None:
    quantity = resource.parse_quantity(text)
    assert (str(quantity), quantity.value(), quantity.milli_value()) == (canonical, value, milli)


LARGE_EXPONENT = "1e" + "9" * 10_000


@pytest.mark.parametrize(
    "text",
    ["", "1x", "1.1.1", "1 Gi", "Gi", "1KiB", "--1", "1e", "0x10", ".", "1\n", " 1", "1_0", "١", "1e١", LARGE_EXPONENT],
)
def test_refused(text: str) -> None:
    with pytest.raises(resource.QuantityError):
        resource.parse_quantity(text)


def test_no_long_text_is_kept() -> None:
    class Text(str):
        """Support weak references, so that the test notices when the text is freed."""

    text = Text("0" * 100 + "1Ki")
    seen = weakref.ref(text)
    assert resource.parse_quantity(text).value() == 1024
    del text
    assert seen() is None


def test_arithmetic_keeps_the_family_of_suffixes() -> None:
    gi, m = resource.parse_quantity("1Gi"), resource.parse_quantity("500m")
    assert str(gi.add(gi)) == "2Gi"
    assert str(resource.Quantity(0).add(gi)) == "1Gi"
    assert str(m.add(m)) == "1"
    assert str(m.sub(resource.parse_quantity("1"))) == "-500m"


def test_equality_goes_by_value() -> None:
    one, thousand = resource.parse_quantity("1"), resource.parse_quantity("1000m")
    assert one == thousand and hash(one) == hash(thousand) and one.cmp(thousand) == 0
    assert resource.parse_quantity("1") < resource.parse_quantity("1Ki")


def test_amounts_are_capped() -> None:
    assert resource.parse_quantity("100E").value() == 2**63 - 1
