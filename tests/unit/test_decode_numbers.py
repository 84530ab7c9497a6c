from __future__ import annotations

import struct
from decimal import Decimal

import pytest

from kafka_ingest.errors import DeadLetterReason
from tests.decoding import read_decode_error_or_value, read_value

WRONG_TYPE, OUT_OF_RANGE = DeadLetterReason.WRONG_TYPE, DeadLetterReason.OUT_OF_RANGE


@pytest.mark.parametrize(("raw", "expected"), [("true", True), ("false", False)])
def test_a_boolean_is_true_or_false(raw: str, expected: bool) -> None:
    assert read_value("boolean", raw) is expected


@pytest.mark.parametrize("raw", ["1", "0", '"true"', "[]", "{}", '""'])
def test_nothing_else_is_a_boolean(raw: str) -> None:
    assert read_value("boolean", raw) == WRONG_TYPE


@pytest.mark.parametrize(
    ("type_name", "raw", "expected"),
    [
        ("smallint", "32767", 32767),
        ("smallint", "-32768", -32768),
        ("integer", "2147483647", 2147483647),
        ("integer", "-2147483648", -2147483648),
        ("bigint", "9223372036854775807", 9223372036854775807),
        ("bigint", "-9223372036854775808", -9223372036854775808),
        ("bigint", "9007199254740993", 9007199254740993),
        ("integer", "-0", 0),
        ("integer", "1.0", 1),
        ("integer", "1e2", 100),
        ("integer", "1.50e1", 15),
        ("integer", "1200e-2", 12),
        ("integer", "0e999999999999", 0),
        ("integer", "-0.000", 0),
        ("bigint", "9007199254740993.0", 9007199254740993),
        ("bigint", "922337203685477580.7e1", 9223372036854775807),
    ],
)
def test_an_integral_number_in_range_is_kept_exactly(type_name: str, raw: str, expected: int) -> None:
    assert read_value(type_name, raw) == expected


@pytest.mark.parametrize(
    ("type_name", "raw"),
    [
        ("smallint", "32768"),
        ("smallint", "-32769"),
        ("integer", "2147483648"),
        ("integer", "-2147483649.0"),
        ("bigint", "9223372036854775808"),
        ("bigint", "-9223372036854775809"),
        ("bigint", "9223372036854775808.0"),
        ("bigint", "1e19"),
        ("bigint", "1e999999999"),
        ("bigint", "1e-999999999"),
        ("bigint", "9" * 5000),
        ("integer", "1.5"),
        ("integer", "15e-1"),
        ("bigint", "9007199254740993.5"),
    ],
)
def test_a_number_that_an_integer_type_cannot_hold_exactly_is_out_of_range(type_name: str, raw: str) -> None:
    assert read_value(type_name, raw) == OUT_OF_RANGE


@pytest.mark.parametrize("raw", ['"1"', "true", "[1]", "{}", '""'])
@pytest.mark.parametrize("type_name", ["smallint", "integer", "bigint", "real", "double precision"])
def test_what_is_no_number_is_of_the_wrong_type(type_name: str, raw: str) -> None:
    assert read_value(type_name, raw) == WRONG_TYPE


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("0", 0.0),
        ("12", 12.0),
        ("12.50", 12.5),
        ("1E3", 1000.0),
        ("0.1", 0.1),
        ("0.30000000000000004", 0.1 + 0.2),
        ("0.10000000000000001", 0.1),  # 17 digits, as printf("%.17g") writes it
        ("1.7976931348623157e308", 1.7976931348623157e308),
        ("5e-324", 5e-324),
        ("4.9406564584124654e-324", 5e-324),
        ("9007199254740992", 9007199254740992.0),
        ("36893488147419103232", 2.0**65),  # exact, though its shortest name is 3.6893488147419103e+19
        ("0.1000000000000000055511151231257827021181583404541015625", 0.1),  # all digits of the float
        ("0e-999999999", 0.0),
    ],
)
def test_a_number_that_names_its_nearest_double_is_kept(raw: str, expected: float) -> None:
    assert read_value("double precision", raw) == expected


def test_minus_zero_keeps_its_sign() -> None:
    assert [str(read_value(name, "-0.0")) for name in ("real", "double precision")] == ["-0.0", "-0.0"]
    assert str(read_value("double precision", "-0")) == "-0.0"


@pytest.mark.parametrize(
    "raw",
    [
        "9007199254740993",  # between two doubles
        "0.1234567890123456789",
        "0.100000000000000001",
        "1e309",
        "1e999999999",
        "-1e400",
        "1e-400",
        "3e-324",  # the nearest double is 4.94e-324
        "12345678901234567",
        "123456789012345678",  # the nearest double is 123456789012345680
    ],
)
def test_a_number_that_a_double_would_round_is_out_of_range(raw: str) -> None:
    assert read_value("double precision", raw) == OUT_OF_RANGE


@pytest.mark.parametrize(
    ("raw", "bits"),
    [
        ("0.1", "3dcccccd"),
        ("0.100000001", "3dcccccd"),  # nine digits
        ("0.10000000149011612", "3dcccccd"),  # the double that a producer widened it to
        ("16777216", "4b800000"),
        ("3.4028235e38", "7f7fffff"),
        ("1e-45", "00000001"),  # the shortest name of the smallest float
        ("1.5", "3fc00000"),
    ],
)
def test_a_number_that_names_its_nearest_real_is_kept(raw: str, bits: str) -> None:
    assert struct.pack(">f", read_value("real", raw)).hex() == bits


@pytest.mark.parametrize(
    "raw", ["16777217", "0.1000000000001", "3.5e38", "1e39", "1e-46", "1.23456789", "0.123456789123"]
)
def test_a_number_that_a_real_would_round_is_out_of_range(raw: str) -> None:
    assert read_value("real", raw) == OUT_OF_RANGE


@pytest.mark.parametrize(
    ("type_name", "raw", "expected"),
    [
        ("numeric", "0.1234567890123456789", "0.1234567890123456789"),
        ("numeric", '"0.1234567890123456789"', "0.1234567890123456789"),
        ("numeric", "1.50", "1.50"),
        ("numeric", "1e3", "1000"),
        ("numeric", "15E-4", "0.0015"),
        ("numeric", '"+007.5"', "7.5"),
        ("numeric", '".5"', "0.5"),
        ("numeric", '"5."', "5"),
        ("numeric", '"1e2"', "100"),
        ("numeric", "0e999999999", "0"),
        ("numeric", "-12345678901234567890123456789", "-12345678901234567890123456789"),
        ("numeric(5,2)", "123.45", "123.45"),
        ("numeric(5,2)", "-999.99", "-999.99"),
        ("numeric(5,2)", "1.5", "1.5"),
        ("numeric(5,2)", "1.500", "1.50"),  # the third digit is zero: nothing is lost
        ("numeric(5,2)", "12345e-2", "123.45"),
        ("numeric(5,0)", "12345.000", "12345"),
        ("numeric(2,2)", "0.99", "0.99"),
        ("numeric(2,2)", "0", "0"),
        ("numeric(5,2)", "0.0000", "0.00"),
    ],
)
def test_a_decimal_number_is_kept_digit_for_digit(type_name: str, raw: str, expected: str) -> None:
    assert read_value(type_name, raw) == expected


@pytest.mark.parametrize(
    ("type_name", "raw"),
    [
        ("numeric(5,2)", "12345.6"),  # case C40
        ("numeric(5,2)", "1000"),
        ("numeric(5,2)", "999.995"),
        ("numeric(5,2)", "0.001"),
        ("numeric(5,2)", '"0.001"'),
        ("numeric(2,2)", "1"),
        ("numeric(5,0)", "0.5"),
        ("numeric(5,2)", "1e999999999"),
        ("numeric(5,2)", "1e-999999999"),
        ("numeric", "1e999999999"),
        ("numeric", "1e99999999999999999999999999"),
        ("numeric", "1e-16384"),
        ("numeric", "1e131072"),
        ("numeric", "9" * 131_073),
    ],
)
def test_a_decimal_number_beyond_precision_or_scale_is_out_of_range(type_name: str, raw: str) -> None:
    assert read_value(type_name, raw) == OUT_OF_RANGE


def test_numeric_reaches_to_the_limits_of_postgresql() -> None:
    assert read_value("numeric", "1e131071") == "1e131071"
    assert read_value("numeric", "1e-16383") == "1e-16383"
    assert read_value("numeric", "0." + "0" * 20_000) == "0e-16383"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("1e16", "1" + "0" * 16),
        ("-12e17", "-12e17"),
        ("1e-17", "0." + "0" * 16 + "1"),
        ("1e-18", "1e-18"),
        ("-1.50e-30", "-150e-32"),
        ("0e-18", "0e-18"),
        ("-0e999999999999999", "-0"),
        ("0." + "0" * 16_380 + "50000", "500e-16383"),
        ("123e-100", "123e-100"),
    ],
)
def test_a_power_of_ten_is_not_written_out(raw: str, text: str) -> None:
    found = read_value("numeric", raw)
    assert found == text
    assert raw.startswith("-0e") or Decimal(found) == Decimal(raw)


@pytest.mark.parametrize(
    "raw",
    ['"NaN"', '"Infinity"', '"-inf"', '"1,5"', '"1 "', '" 1"', '"0x10"', '"1_000"', '"."', '"1e"', '""', "true", "[1]"],
)
def test_what_names_no_decimal_number_is_of_the_wrong_type(raw: str) -> None:
    assert read_value("numeric(10,2)", raw) == WRONG_TYPE


@pytest.mark.parametrize("digits", ["\u0663", "1\uff12"])
def test_digits_of_other_scripts_are_no_numbers(digits: str) -> None:
    assert read_value("numeric", f'"{digits}"') == WRONG_TYPE


def test_a_detail_names_column_path_expected_and_found() -> None:
    decode_error = read_decode_error_or_value("numeric(5,2)", "12345.6")
    assert decode_error.detail == (
        'column "a" from $.a: expected a number that numeric(5,2) holds exactly, found 12345.6'
    )


def test_a_detail_never_quotes_more_than_a_short_excerpt() -> None:
    decode_error = read_decode_error_or_value("integer", '"' + "x" * 10_000 + '"')
    assert decode_error.detail.count("x") <= 100
