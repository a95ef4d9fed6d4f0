"""Test the measurement of the structure, and the table of layers."""

from __future__ import annotations

from framework.scripts import load_script

verify_structure = load_script("verify_structure")

FUNCTIONS = '''
def short() -> int:
    """Says much.

    And more.
    """
    return 1


class Thing:
    def long(self) -> None:
        a = 1

        b = 2
        print(a, b)
'''


def test_docstrings_do_not_make_a_function_long() -> None:
    assert list(verify_structure.lengths_of_functions(FUNCTIONS)) == [(2, "short"), (5, "long")]


def test_layers_are_drawn_between_the_marks() -> None:
    document = f"before\n{verify_structure.BEGIN}old\n{verify_structure.END}after\n"
    drawn = verify_structure.with_drawing(document)
    assert drawn.startswith("before\n") and drawn.endswith("after\n")
    assert "| 1 | klog |" in drawn and "old" not in drawn
    assert verify_structure.with_drawing(drawn) == drawn


def test_what_a_reader_does_not_read_is_left_out() -> None:
    found = {str(path.relative_to(verify_structure.ROOT)) for path, _ in verify_structure.sources()}
    assert "kubelet/kubelet.py" in found and "kubelet/status/generate.py" in found
    generated = {"pkg/api/core/v1/types.py", "pkg/csi_spec/csi_pb2.py"}
    assert not found & {*generated, "kubelet/testing.py", "kubelet/kubelet_test.py"}
