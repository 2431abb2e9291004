"""The committed schema, examples and rule pages are what the code renders: `python tests/golden.py` writes them."""

from __future__ import annotations

import golden
import pytest

RENDERED = golden.rendered()


@pytest.mark.parametrize("name", sorted(RENDERED))
def test_the_committed_file_is_what_is_rendered(name: str) -> None:
    path = golden.ROOT / name
    assert path.is_file(), f"{name} is missing: run `python tests/golden.py`"
    assert path.read_text("utf-8") == RENDERED[name], f"{name} is stale: run `python tests/golden.py`"


def test_no_other_page_or_example_lies_beside_them() -> None:
    for folder in ("docs/rules", "reports/examples"):
        found = {f"{folder}/{path.name}" for path in (golden.ROOT / folder).iterdir()}
        assert found == {name for name in RENDERED if name.startswith(folder)}
