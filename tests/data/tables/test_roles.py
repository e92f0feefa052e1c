"""Columns are chosen by name; a name that is not there, or a choice that contradicts another, is rejected by name."""

from __future__ import annotations

import polars as pl
import pytest

from cutaway.core.config import build, exact_text
from cutaway.core.errors import CutawayError, DataError, SettingError, UnknownName
from cutaway.data.settings import DataSettings
from cutaway.data.tables.column_roles import choose_roles
from cutaway.data.tables.table_files import Table

TABLE = Table("houses.csv", pl.DataFrame({c: ["1"] for c in ("id", "size (m²)", "city", " price", "Rooms")}))


def test_what_is_not_said_is_an_input() -> None:
    roles = choose_roles(
        TABLE, DataSettings(target=" price", group="city", ignore=("id",), types=("size (m²):category",))
    )
    assert (roles.target, roles.group, roles.ignored) == (" price", "city", ("id",))
    assert roles.inputs == ("size (m²)", "Rooms")
    assert roles.types == {"size (m²)": "category"}


def test_spaces_around_a_name_do_not_count_unless_they_tell_columns_apart() -> None:
    roles = choose_roles(TABLE, DataSettings(target="Rooms", ignore=("price",)))
    assert roles.ignored == (" price",)
    assert choose_roles(TABLE, DataSettings(target="price")).target == " price"
    two = Table("two.csv", pl.DataFrame({c: ["1"] for c in ("a", "a ", "b")}))
    assert choose_roles(two, DataSettings(target="a ")).target == "a "
    with pytest.raises(UnknownName, match="differs by spaces"):
        choose_roles(two, DataSettings(target=" a"))


@pytest.mark.parametrize(
    ("typed", "ignored", "types"),
    [
        ({"ignore": "a,b"}, ("a,b",), {}),
        ({"ignore": "a, b,x=1"}, ("a,b", "x=1"), {}),
        ({"ignore": '"a,b",x=1'}, ("a,b", "x=1"), {}),
        ({"ignore": "c,d"}, ("c", "d"), {}),  # both are columns, and so is c,d
        ({"ignore": '"c,d"'}, ("c,d",), {}),
        ({"ignore": "c,c,d"}, ("c", "c", "d"), {}),
        ({"ignore": "[USD] <net>,age: years"}, ("[USD] <net>", "age: years"), {}),
        ({"ignore": '"[USD]"'}, ("[USD]",), {}),
        ({"ignore": ("a,b", "c")}, ("a,b", "c"), {}),
        ({"ignore": "p, q "}, (" p,q",), {}),
        ({"types": "age: years:category,a,b:number"}, (), {"age: years": "category", "a,b": "number"}),
        ({"types": 'c:number,"a,b:category"'}, (), {"c": "number", "a,b": "category"}),
    ],
)
def test_a_list_names_columns_with_commas_and_other_signs(
    typed: dict[str, object], ignored: tuple[str, ...], types: dict[str, str]
) -> None:
    names = ("a,b", "c", "d", "c,d", "x=1", "age: years", "[USD] <net>", "[USD]", " p,q", "y")
    table = Table("t.csv", pl.DataFrame({c: ["1"] for c in names}))
    settings = build(DataSettings, {"target": "y", **typed})
    roles = choose_roles(table, settings)
    assert (roles.ignored, roles.types) == (ignored, types)
    again = build(DataSettings, {key: exact_text(getattr(settings, key)) for key in ("target", *typed)})
    assert again == settings


def test_a_list_of_columns_that_are_not_there_names_the_first_of_them() -> None:
    table = Table("t.csv", pl.DataFrame({c: ["1"] for c in ("a,b", "c", "y")}))
    with pytest.raises(UnknownName, match="no column 'a'"):
        choose_roles(table, build(DataSettings, {"target": "y", "ignore": "c,a"}))
    with pytest.raises(SettingError, match="Invalid types=c:"):
        choose_roles(table, build(DataSettings, {"target": "y", "types": "c,a:number"}))


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (DataSettings(), SettingError, ["target=COLUMN", "id, size (m²), city, ' price', Rooms"]),
        (DataSettings(target="rooms"), UnknownName, ["'Rooms'", "differs by capitals", "target='Rooms'"]),
        (DataSettings(target="citty"), UnknownName, ["no column 'citty'", "Similar: city", "Its columns are: id"]),
        (DataSettings(target="xyz"), UnknownName, ["no column 'xyz'", "Its columns are: id"]),
        (DataSettings(target="city", group="town"), UnknownName, ["no column 'town'"]),
        (DataSettings(target="city", group="city"), SettingError, ["group=city is the target"]),
        (DataSettings(target="city", ignore=("citty",)), UnknownName, ["Similar: city"]),
        (DataSettings(target="city", ignore=("city",)), SettingError, ["ignore=city leaves the target out"]),
        (DataSettings(target="city", types=("rooms:number",)), UnknownName, ["differs by capitals"]),
        (DataSettings(target="city", types=("Rooms:float",)), SettingError, ["types=Rooms:float", "yes/no"]),
        (DataSettings(target="city", types=("Rooms",)), SettingError, ["COLUMN:TYPE"]),
        (DataSettings(target="city", types=("city:date",)), SettingError, ["a target is a number or a category"]),
        (
            DataSettings(target="city", ignore=("id", "size (m²)", "Rooms", "price")),
            DataError,
            ["No column of houses.csv is left to predict 'city' from"],
        ),
    ],
)
def test_rejections_name_the_column_and_the_way_out(
    settings: DataSettings, error: type[CutawayError], words: list[str]
) -> None:
    with pytest.raises(error) as rejected:
        choose_roles(TABLE, settings)
    for word in words:
        assert word in str(rejected.value)


def test_a_single_column_is_rejected_with_the_likely_cause() -> None:
    table = Table("odd.csv", pl.DataFrame({"a|b|c": ["1|2|3"]}))
    with pytest.raises(DataError, match=r"'a\|b\|c' is the only one of odd.csv.*separated by something else"):
        choose_roles(table, DataSettings(target="c"))


def test_many_columns_are_not_all_listed() -> None:
    table = Table("wide.csv", pl.DataFrame({f"gene{i}": ["1"] for i in range(1000)}))
    with pytest.raises(SettingError, match=r"gene39 and 960 more\.") as rejected:
        choose_roles(table, DataSettings())
    assert len(str(rejected.value)) < 600
