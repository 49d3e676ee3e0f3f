"""CloudEvents SQL 1.0: each rule of the specification, with cases of our own."""

import pytest

from angelia.broker.cesql import Fault, FaultKind, compile_expression
from angelia.errors import CesqlError, FilterError

MATH, CAST = FaultKind.MATH, FaultKind.CAST
MISSING, NO_FUNCTION, FUNCTION = (
    FaultKind.MISSING_ATTRIBUTE,
    FaultKind.MISSING_FUNCTION,
    FaultKind.FUNCTION_EVALUATION,
)

EVENT = {
    "specversion": "1.0",
    "id": "4711",
    "source": "https://ferries.example/harbour",
    "type": "harbour.Arrival",
    "subject": "true",
    "time": "2026-02-03T04:05:06Z",
    "berth": 7,
    "late": True,
    "empty": False,
    "tide": "-12",
    "captain": "Ada O'Neill",
    "7seas": "all",
    "huge": 2**40,
}

LITERALS = [
    ("true", True),
    ("FALSE", False),
    ("tRuE", True),
    ("0", 0),
    ("007", 7),
    ("+12", 12),
    ("-12", -12),
    ("2147483647", 2**31 - 1),
    ("-2147483648", -(2**31)),
    ("''", ""),
    ('""', ""),
    ("'harbour'", "harbour"),
    ('"Harbour"', "Harbour"),
    (r"'it\'s'", "it's"),
    (r'"say \"ay\""', 'say "ay"'),
    (r"""'a "quoted" word'""", 'a "quoted" word'),
    ('"it\'s"', "it's"),
    (r"'a\tb'", r"a\tb"),  # no other escapes: a backslash is itself
    (r"'a\\'", r"a\\"),
    (r"'\"'", r"\""),
    ("'line\nbreak'", "line\nbreak"),
    ("'Ωμέγα'", "Ωμέγα"),
    ("(true)", True),
    ("((('deep')))", "deep"),
    (" \t\r\n 5 \n", 5),
]

ATTRIBUTES = [
    ("id", "4711"),
    ("time", "2026-02-03T04:05:06Z"),
    ("berth", 7),
    ("late", True),
    ("tide", "-12"),
    ("7seas", "all"),
    ("huge", "1099511627776"),  # no Integer of CESQL: a String
    ("exists subject", True),
    ("EXISTS nothing", False),
    ("EXISTS empty", True),
    ("NOT EXISTS nothing", True),
    ("EXISTS 7seas", True),
    ("left = 'x' OR TRUE", False, MISSING),  # a function's name is a name where no '(' follows
]

ARITHMETIC = [
    ("1 + 2", 3),
    ("1+2", 3),
    ("1 -2", -1),
    ("1-2", -1),
    ("1 - -2", 3),
    ("1 + +2", 3),
    ("6 * 7", 42),
    ("2 + 3 * 4", 14),
    ("(2 + 3) * 4", 20),
    ("20 - 3 - 2", 15),
    ("100 / 10 / 5", 2),
    ("100 / (10 / 5)", 50),
    ("2 * 7 % 4", 2),
    ("7 / 2", 3),
    ("-7 / 2", -3),
    ("7 / -2", -3),
    ("-7 / -2", 3),
    ("7 % 3", 1),
    ("-7 % 3", -1),
    ("7 % -3", 1),
    ("-7 % -3", -1),
    ("-(3)", -3),
    ("- 3", -3),
    ("--3", 3),
    ("---3", -3),
    ("-'3'", -3),
    ("-TRUE", -1),
    ("-berth", -7),
    ("berth -- berth", 14),  # not a comment
    ("-tide", 12),
    ("-(2 + 3) * 2", -10),
    ("'4' * '5'", 20),
    ("TRUE + TRUE", 2),
    ("berth + tide", -5),
    ("1 / 0", 0, MATH),
    ("1 % 0", 0, MATH),
    ("0 / 0", 0, MATH),
    ("1 / FALSE", 0, MATH),
    ("2147483647 + 1", 0, MATH),
    ("-2147483648 - 1", 0, MATH),
    ("65536 * 65536", 0, MATH),
    ("-2147483648 / -1", 0, MATH),
    ("-2147483648 % -1", 0),
    ("--2147483648", 0, MATH),
    ("'four' + 1", 0, CAST),
    ("1 + ''", 0, CAST),
    ("-'x'", 0, CAST),
    ("nothing * 5", 0, MISSING),
    ("5 - nothing", 0, MISSING),
    ("1 / nothing", 0, MISSING),
    ("nothing / 0", 0, MISSING),
    ("-nothing", 0, MISSING),
]

COMPARISONS = [
    ("1 = 1", True),
    ("1 = 2", False),
    ("1 != 2", True),
    ("1 <> 1", False),
    ("TRUE = TRUE", True),
    ("TRUE <> FALSE", True),
    ("'a' = 'a'", True),
    ("'a' = 'A'", False),
    ("'a' != 'A'", True),
    ("1 < 2", True),
    ("2 < 2", False),
    ("2 <= 2", True),
    ("3 > 2", True),
    ("2 >= 3", False),
    ("'10' < '9'", False),  # only Integers have an order
    ("tide < 0", True),
    ("FALSE < TRUE", True),
    ("1 + 1 = 2", True),
    ("2 > 1 = TRUE", True),
    ("1 = 1 = 1", True),  # from left to right: TRUE = 1
    # `=` is ambiguous: the right side decides what the left is cast to
    ("'TRUE' = TRUE", True),
    ("TRUE = 'TRUE'", False),
    ("TRUE = 'true'", True),
    ("'07' = 7", True),
    ("7 = '07'", False),
    ("7 = '7'", True),
    ("2 = TRUE", True),
    ("TRUE = 2", False),
    ("tide = -12", True),
    ("tide = '-12'", True),
    ("berth = '7'", True),
    ("late = 'true'", True),
    ("subject = TRUE", True),
    ("'seven' = 7", False, CAST),
    ("'seven' != 7", False, CAST),
    ("'yes' = TRUE", False, CAST),
    ("'a' < 1", False, CAST),
    ("1 >= 'a'", False, CAST),
    ("nothing = 1", False, MISSING),
    ("nothing != 1", False, MISSING),
    ("nothing <> ''", False, MISSING),
    ("1 < nothing", False, MISSING),
    ("nothing = nothing", False, MISSING),
    ("true AND (nothing = '')", False, MISSING),
]

LOGIC = [
    *[(f"{a} AND {b}", a and b) for a in (True, False) for b in (True, False)],
    *[(f"{a} OR {b}", a or b) for a in (True, False) for b in (True, False)],
    *[(f"{a} XOR {b}", a is not b) for a in (True, False) for b in (True, False)],
    ("NOT TRUE", False),
    ("NOT NOT TRUE", True),
    ("not 'false'", True),
    ("NOT 0", True),
    ("NOT 10", False),
    ("'TRUE' AND 1", True),
    ("'maybe' AND TRUE", False, CAST),
    ("TRUE AND 'maybe'", False, CAST),
    ("NOT 'maybe'", False, CAST),
    ("FALSE AND 'maybe'", False),
    ("FALSE AND 1 / 0 = 1", False),
    ("TRUE OR 1 / 0 = 1", True),
    ("TRUE OR nothing", True),
    ("FALSE AND NOSUCH(1)", False),
    ("TRUE AND 1 / 0 = 0", False, MATH),
    ("FALSE OR 1 / 0 = 0", False, MATH),
    ("TRUE XOR 1 / 0 = 0", False, MATH),
    ("nothing AND FALSE", False, MISSING),
    ("nothing OR TRUE", False, MISSING),
    ("NOT nothing", False, MISSING),
    ("EXISTS nothing AND nothing = 1 OR TRUE", True),
    ("TRUE XOR nothing", False, MISSING),
    # AND, OR and XOR are of one precedence, from left to right
    ("TRUE OR TRUE AND FALSE", False),
    ("TRUE OR (TRUE AND FALSE)", True),
    ("TRUE XOR TRUE OR TRUE", True),
    ("TRUE XOR (TRUE OR TRUE)", False),
    ("FALSE AND TRUE OR TRUE", True),
    # NOT is of a higher precedence than LIKE, IN and the comparisons
    ("NOT 'true' LIKE 'false'", True),
    ("NOT ('true' LIKE 'false')", True),
    ("NOT 'true' LIKE 'true'", False),
    ("NOT TRUE IN (FALSE)", True),
    ("NOT FALSE = TRUE", True),
    ("NOT TRUE = FALSE AND TRUE", True),
    ("NOT 1 = 2", False),  # (NOT 1) = 2: FALSE, cast to an Integer, is not 2
    ("-2 LIKE '-2'", True),
    ("1 + 1 IN (1, 2)", 2),  # 1 + (1 IN (1, 2))
    ("(1 + 1) IN (1, 2)", True),
    ("1 = 2 OR 2 + 2 * 2 = 6 AND TRUE", True),
]

LIKE = [
    ("'harbour' LIKE 'harbour'", True),
    ("'harbour' LIKE 'Harbour'", False),
    ("'harbour' LIKE 'harb'", False),
    ("'harbour' LIKE 'harb%'", True),
    ("'harbour' LIKE '%our'", True),
    ("'harbour' LIKE '%bo%'", True),
    ("'harbour' LIKE 'h%b%r'", True),
    ("'harbour' LIKE 'h%x%r'", False),
    ("'aba' LIKE 'ab%ba'", False),  # the b is not there twice
    ("'abba' LIKE 'ab%ba'", True),
    ("'' LIKE '%'", True),
    ("'' LIKE ''", True),
    ("'' LIKE '_'", False),
    ("'a' LIKE '%%'", True),
    ("'abc' LIKE 'a_c'", True),
    ("'ac' LIKE 'a_c'", False),
    ("'abc' LIKE '__'", False),
    ("'abc' LIKE '___'", True),
    ("'abc' LIKE '_%_'", True),
    ("'a' LIKE '_%_'", False),
    ("'Ωμ' LIKE '__'", True),
    ("'a\nb' LIKE 'a_b'", True),
    ("'a\nb' LIKE 'a%'", True),
    (r"'50%' LIKE '50\%'", True),
    (r"'500' LIKE '50\%'", False),
    (r"'a_b' LIKE 'a\_b'", True),
    (r"'axb' LIKE 'a\_b'", False),
    (r"'axb_' LIKE 'a_b\_'", True),
    (r"'a\b' LIKE 'a\b'", True),
    (r"'a\x%' LIKE 'a\_\%'", False),
    (r"'\9' LIKE '\_'", False),
    (r"'\%' LIKE '\\%'", True),
    (r"'it\'s' LIKE 'it\'_'", True),
    ("'a.c' LIKE 'a.c' AND 'abc' NOT LIKE 'a.c'", True),
    ("'(' LIKE '(' AND 'aa' NOT LIKE 'a*'", True),
    ("'abc' NOT LIKE 'a%'", False),
    ("'abc' NOT LIKE 'b%'", True),
    ("1234 LIKE '12%'", True),
    ("TRUE LIKE 't__e'", True),
    ("berth LIKE '7'", True),
    ("source like 'https://%'", True),
    ("nothing LIKE '%'", False, MISSING),
    ("nothing NOT LIKE 'a'", False, MISSING),
    ("1 / 0 LIKE '0'", 1),  # 1 / (0 LIKE '0'), that is 1 / TRUE
]

IN = [
    ("1 IN (1)", True),
    ("1 IN (2, 3)", False),
    ("'b' IN ('a', 'b')", True),
    ("'B' IN ('a', 'b')", False),
    ("1 NOT IN (2, 3)", True),
    ("1 NOT IN (2, 1)", False),
    ("TRUE IN (FALSE, 1 = 1)", True),
    ("berth IN (6 + 1)", True),
    ("'x' IN (CONCAT('x'))", True),
    # here the left side decides the type
    ("7 IN ('07')", True),
    ("'7' IN (7)", True),
    ("'07' IN (7)", False),
    ("TRUE IN ('TRUE')", True),
    ("'TRUE' IN (TRUE)", False),
    ("TRUE IN (5)", True),
    ("1 IN ('one', 1)", False, CAST),
    ("1 IN (1, 'one')", True),  # as `1 = 1 OR …`: the rest is not looked at
    ("2 NOT IN (1, 'one')", False, CAST),
    ("1 IN (1 / 0, 1)", False, MATH),
    ("nothing IN (1)", False, MISSING),
    ("nothing NOT IN (1)", False, MISSING),
    ("1 IN (nothing)", False, MISSING),
    ("1 IN (1) = TRUE", True),
]

FUNCTIONS = [
    ("LENGTH('harbour')", 7),
    ("LENGTH('')", 0),
    ("LENGTH('Ωμ')", 2),
    ("LENGTH(TRUE)", 4),
    ("LENGTH(-12)", 3),
    ("length(id)", 4),
    ("CONCAT()", ""),
    ("CONCAT('a')", "a"),
    ("CONCAT('a', 1, TRUE)", "a1true"),
    ("CONCAT_WS('-')", ""),
    ("CONCAT_WS('-', 'a')", "a"),
    ("CONCAT_WS('-', 'a', 2, FALSE)", "a-2-false"),
    ("concat_ws('', 'a', 'b')", "ab"),
    ("LOWER('HaRBour Ω')", "harbour ω"),
    ("UPPER('harbour ω')", "HARBOUR Ω"),
    ("TRIM('  a b\t\n')", "a b"),
    ("TRIM('\u2003\u3000a\u00a0')", "a"),
    ("TRIM('\x1ca\x00')", "\x1ca\x00"),  # control characters are no white space
    ("LEFT('harbour', 4)", "harb"),
    ("LEFT('harbour', 0)", ""),
    ("LEFT('harbour', 70)", "harbour"),
    ("LEFT('harbour', '2')", "ha"),
    ("LEFT('harbour', -1)", "harbour", FUNCTION),
    ("RIGHT('harbour', 3)", "our"),
    ("RIGHT('harbour', 0)", ""),
    ("RIGHT('harbour', 7)", "harbour"),
    ("RIGHT('harbour', 70)", "harbour"),
    ("RIGHT('harbour', -1)", "harbour", FUNCTION),
    ("SUBSTRING('harbour', 1)", "harbour"),
    ("SUBSTRING('harbour', 5)", "our"),
    ("SUBSTRING('harbour', 7)", "r"),
    ("SUBSTRING('harbour', -3)", "our"),
    ("SUBSTRING('harbour', -7)", "harbour"),
    ("SUBSTRING('harbour', 0)", ""),
    ("SUBSTRING('', 0)", ""),
    ("SUBSTRING('harbour', 8)", "", FUNCTION),
    ("SUBSTRING('harbour', -8)", "", FUNCTION),
    ("SUBSTRING('', 1)", "", FUNCTION),
    ("SUBSTRING('harbour', 1, 4)", "harb"),
    ("SUBSTRING('harbour', 5, 100)", "our"),
    ("SUBSTRING('harbour', 5, 2147483647)", "our"),
    ("SUBSTRING('harbour', -3, 2)", "ou"),
    ("SUBSTRING('harbour', 2, 0)", ""),
    ("SUBSTRING('harbour', 0, 3)", ""),
    ("SUBSTRING('harbour', 8, 1)", "", FUNCTION),
    ("SUBSTRING('harbour', 2, -1)", "", FUNCTION),
    ("SUBSTRING(4711, 2, 2)", "71"),
    ("ABS(12)", 12),
    ("ABS(-12)", 12),
    ("ABS(tide)", 12),
    ("ABS(-2147483647)", 2147483647),
    ("ABS(-2147483648)", 2147483647, MATH),
    ("ABS('x')", 0, CAST),
    ("LEFT('abc', 'x')", "", CAST),
    ("LENGTH(nothing)", 0, MISSING),
    ("UPPER(nothing)", "", MISSING),
    ("IS_INT(nothing)", False, MISSING),
    ("CONCAT('a', 1 / 0)", "", MATH),
    ("NOSUCH()", False, NO_FUNCTION),
    ("NO_SUCH('a', 2)", False, NO_FUNCTION),
    ("LENGTH()", False, NO_FUNCTION),
    ("LENGTH('a', 'b')", False, NO_FUNCTION),
    ("CONCAT_WS()", False, NO_FUNCTION),
    ("SUBSTRING('a')", False, NO_FUNCTION),
    ("SUBSTRING('a', 1, 1, 1)", False, NO_FUNCTION),
    ("LENGTH(LEFT(UPPER(type), 7)) = 7", True),
]

CASTS = [
    ("INT('12')", 12),
    ("INT('+12')", 12),
    ("INT('-0012')", -12),
    ("INT('2147483647')", 2147483647),
    ("INT('-2147483648')", -2147483648),
    ("INT(TRUE)", 1),
    ("INT(FALSE)", 0),
    ("INT(5)", 5),
    ("int(tide) < int(berth)", True),
    ("INT('2147483648')", 0, CAST),
    ("INT('')", 0, CAST),
    ("INT('+')", 0, CAST),
    ("INT(' 1')", 0, CAST),
    ("INT('1.0')", 0, CAST),
    ("INT('1_0')", 0, CAST),
    ("INT('١')", 0, CAST),  # an Arabic digit
    ("INT('--1')", 0, CAST),
    ("BOOL('tRUE')", True),
    ("BOOL('False')", False),
    ("BOOL(0)", False),
    ("BOOL(-3)", True),
    ("BOOL(TRUE)", True),
    ("BOOL('1')", False, CAST),
    ("BOOL(' true')", False, CAST),
    ("BOOL('falsely')", False, CAST),
    ("STRING(-12)", "-12"),
    ("STRING(007)", "7"),
    ("STRING(TRUE)", "true"),
    ("STRING('as is')", "as is"),
    ("IS_INT('12')", True),
    ("IS_INT('12.5')", False),
    ("IS_INT(5)", True),
    ("IS_INT(TRUE)", True),
    ("IS_BOOL('TRUE')", True),
    ("IS_BOOL('maybe')", False),
    ("IS_BOOL(0)", True),
]

CASES = [*LITERALS, *ATTRIBUTES, *ARITHMETIC, *COMPARISONS, *LOGIC, *LIKE, *IN, *FUNCTIONS, *CASTS]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_an_expression_gives_its_value_and_its_error(case):
    text, expected, *kinds = case
    value, fault = compile_expression(text).evaluate(EVENT)
    assert (type(value), value) == (type(expected), expected)
    assert ([] if fault is None else [fault.kind]) == kinds


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_an_event_passes_if_the_value_is_true_and_there_is_no_error(case):
    text, expected, *kinds = case
    assert compile_expression(text).matches(EVENT) is (expected is True and not kinds)


@pytest.mark.parametrize("text", [case[0] for case in CASES if "'" not in case[0] and '"' not in case[0]])
def test_keywords_and_functions_are_of_any_case(text):
    lowered, value = compile_expression(text.lower()), compile_expression(text).evaluate(EVENT)[0]
    assert lowered.evaluate(EVENT)[0] == value


@pytest.mark.parametrize(
    ("text", "value", "kinds"),
    [
        ("1 != 1 / 0", True, [MATH]),  # goes on with 0
        ("1 / 0 + 1 % 0", 0, [MATH, MATH]),
        ("LENGTH(LEFT('abc', -1))", 3, [FUNCTION]),  # goes on with 'abc'
        ("nothing = 1 OR TRUE", True, [MISSING]),
        ("nothing + neither", 0, [MISSING, MISSING]),
        ("CONCAT(nothing, 1 / 0, 'x')", "", [MISSING, MATH]),
        ("1 IN (1 / 0, 'x', nothing, 1)", True, [MATH, CAST, MISSING]),
        ("FALSE AND 1 / 0 = 1", False, []),
        ("'maybe' OR TRUE", False, [CAST]),
        ("NOSUCH() OR NOSUCH(1)", False, [NO_FUNCTION, NO_FUNCTION]),
        ("2 + 2", 4, []),
    ],
)
def test_complete_evaluation_goes_on_after_an_error(text, value, kinds):
    found, faults = compile_expression(text).evaluate_completely(EVENT)
    assert (type(found), found) == (type(value), value)
    assert [fault.kind for fault in faults] == kinds


def test_an_error_says_what_was_wrong_and_where():
    assert compile_expression("1 + 2 / 0").evaluate({})[1] == Fault(MATH, "2 is divided by zero", 7)
    fault = compile_expression("berth < 3 AND cargo = 'fish'").evaluate({"berth": 1})[1]
    assert str(fault) == "MissingAttributeError: the event has no attribute cargo (column 15)"
    assert "'seven' is not an Integer" in str(compile_expression("'seven' + 1").evaluate({})[1])


def test_the_attributes_that_every_cloudevent_has_exist_always():
    for name in ("id", "source", "type", "specversion"):
        assert compile_expression(f"EXISTS {name}").matches({})


def test_an_attribute_that_is_none_is_missing():
    assert compile_expression("NOT EXISTS subject").matches({"subject": None})


def test_a_value_that_is_not_boolean_does_not_pass():
    for text in ("1", "'true'", "LENGTH('a')", "subject"):
        assert not compile_expression(text).matches(EVENT)
    assert compile_expression("late").matches(EVENT)


def test_functions_that_do_not_exist_are_known_before_any_event():
    assert compile_expression("LENGTH(id) > 2").faults == []
    faults = compile_expression("FALSE AND LENGHT(id) > ABS()").faults
    assert [(fault.kind, fault.column) for fault in faults] == [(NO_FUNCTION, 11), (NO_FUNCTION, 24)]
    assert faults[0].message == "there is no function LENGHT of 1 argument"


PARSE_ERRORS = [
    ("", 1, "a value is due where the expression ends"),
    ("   ", 4, "a value is due"),
    ("1 +", 4, "a value is due"),
    ("1 2", 3, "an operator or the end"),
    ("= 1", 1, "a value is due where there is ="),
    ("(1", 3, "')' is due where the expression ends"),
    ("1)", 2, "an operator or the end"),
    ("()", 2, "a value is due where there is )"),
    ("'abc", 1, "the string has no closing quote"),
    ("'abc\\'", 1, "the string has no closing quote"),
    ("a = \"b'", 5, "the string has no closing quote"),
    ("a == 1", 4, "a value is due where there is ="),
    ("a ! b", 3, "'!' is not part of an expression"),
    ("a = $b", 5, "'$' is not part of an expression"),
    ("1.5 = 2", 2, "'.' is not part of an expression"),
    ("data.x = 1", 5, "'.' is not part of an expression"),
    ("Type = 'a'", 1, "lower-case letters and digits"),
    ("my_ext = 'a'", 1, "lower-case letters and digits"),
    ("EXISTS", 7, "the name of an attribute is due"),
    ("EXISTS 'a'", 8, "the name of an attribute is due"),
    ("EXISTS (a)", 8, "the name of an attribute is due"),
    ("EXISTS LIKE", 8, "the name of an attribute is due"),
    ("EXISTS Big", 8, "lower-case letters and digits"),
    ("a LIKE b", 8, "a string, the pattern of LIKE,"),
    ("a LIKE 1", 8, "a string, the pattern of LIKE,"),
    ("a LIKE ('b')", 8, "a string, the pattern of LIKE,"),
    ("a LIKE", 7, "a string, the pattern of LIKE,"),
    ("a NOT", 6, "LIKE or IN is due"),
    ("a NOT = 1", 7, "LIKE or IN is due"),
    ("a IN", 5, "'(' is due"),
    ("a IN ()", 7, "a value is due"),
    ("a IN 1", 6, "'(' is due"),
    ("a IN (1,)", 9, "a value is due"),
    ("a IN (1", 8, "')' is due"),
    ("ABS(", 5, "a value is due"),
    ("ABS(1,", 7, "a value is due"),
    ("ABS 1", 1, "lower-case"),
    ("1abc(2)", 1, "1abc is not the name of a function"),
    ("_x(2)", 1, "_x is not the name of a function"),
    ("NOT", 4, "a value is due"),
    ("-", 2, "a value is due"),
    ("+ 5", 1, "a value is due where there is +"),
    ("+'5'", 1, "a value is due where there is +"),
    ("2147483648", 1, "an integer is from -2147483648 to 2147483647"),
    ("-2147483649", 1, "which -2147483649 is not"),
    ("- 2147483648", 3, "which 2147483648 is not"),
    ("AND", 1, "a value is due where there is AND"),
    ("a AND OR b", 7, "a value is due where there is OR"),
    ("a; b", 2, "';' is not part of an expression"),
]


@pytest.mark.parametrize("case", PARSE_ERRORS, ids=[case[0] for case in PARSE_ERRORS])
def test_what_is_not_an_expression_is_refused_at_its_column(case):
    text, column, part = case
    with pytest.raises(CesqlError) as caught:
        compile_expression(text)
    assert part in caught.value.message
    assert caught.value.column == column


@pytest.mark.parametrize("text", [None, 5, b"TRUE", ["TRUE"]])
def test_what_is_not_a_text_is_refused(text):
    with pytest.raises(CesqlError, match="an expression is a text, not"):
        compile_expression(text)


def test_a_parse_error_is_an_error_about_a_filter():
    assert issubclass(CesqlError, FilterError)
