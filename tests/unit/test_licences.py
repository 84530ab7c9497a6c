"""The page of licences has every locked package, and names the licences that deserve a look."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools.licences import licence_of, licences_page
from tools.requirements_lock import RUNTIME, pins

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = licences_page("make generate")
ROWS = dict(re.findall(r"(?m)^\| `(\S+)` \| \S+ \| (.+) \|$", PAGE))


def test_every_package_that_the_product_runs_on_is_listed() -> None:
    assert set(ROWS) == {pin.name for pin, _ in pins(CHECKOUT / RUNTIME.made)}


def test_every_package_with_a_copyleft_licence_is_named_above_the_table() -> None:
    introduction = PAGE.split("| package |")[0]
    copyleft = {name for name, licence in ROWS.items() if re.search("GPL|MPL|EPL|CDDL", licence)}
    assert len(copyleft) > 3
    assert [name for name in copyleft if f"`{name}`" not in introduction] == []


def test_a_package_without_a_known_licence_stops_the_page() -> None:
    with pytest.raises(LookupError, match=r"no licence of left-pad.* make setup"):
        licence_of(Requirement("left-pad==1.0"))
