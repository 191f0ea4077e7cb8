"""Conditions as dictionaries, as filters of LlamaIndex and of Haystack, against what Python finds in the same documents."""

from __future__ import annotations

import datetime
import operator
import unittest
from types import SimpleNamespace
from typing import Any, Callable

import numpy as np

from plaid_ir import Index
from plaid_ir._conditions import from_haystack, from_llama_index

ROWS: list[dict[str, Any]] = [
    {"year": 1999, "lang": "en", "tags": ["a", "b"], "draft": True, "at": datetime.date(2020, 1, 2)},
    {"year": 2004, "lang": "de", "tags": ['say "a"', "x,y"], "draft": False, "at": datetime.date(2021, 1, 2)},
    {"year": None, "lang": "it's", "tags": []},
    {"lang": 'quo"te\nline', "tags": "a b. [x]", "a.b": 1},
    {"year": 2010.5, "lang": "", "tags": [1, 2.5, True], 'odd "name" --': "x' OR 1=1"},
    {"year": 2004, "lang": "[en]", "tags": ["[x]", "a.*"], "$price": 3},
]


def of_key(key: str, test: Callable[[Any], bool], missing: bool = False) -> set[str]:
    """Rows that pass a test; those without the key pass it if ``missing``."""
    return {str(i) for i, row in enumerate(ROWS) if (missing if row.get(key) is None else test(row[key]))}


def contains(item: Any) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        if isinstance(value, list):
            return any(type(v) is type(item) and v == item for v in value)
        return isinstance(value, str) and isinstance(item, str) and item in value

    return test


class Dictionaries(unittest.TestCase):
    index: Index

    @classmethod
    def setUpClass(cls) -> None:
        cls.index = Index(None).add_documents([str(i) for i in range(len(ROWS))], [np.eye(4)] * len(ROWS), ROWS)
        cls.addClassCleanup(cls.index.close)

    def found(self, chosen: Any) -> set[str]:
        return set(self.index.ids(chosen)) if not isinstance(chosen, tuple) else set(self.index.ids(*chosen))

    def test_operators(self) -> None:
        every = {str(i) for i in range(len(ROWS))}
        for where, want in (
            ({}, every),
            ({"year": {"$eq": 2004}}, of_key("year", lambda v: v == 2004)),
            ({"year": {"$ne": 2004}}, of_key("year", lambda v: v != 2004, True)),
            ({"year": {"$gte": 2000, "$lt": 2010}}, of_key("year", lambda v: 2000 <= v < 2010)),
            ({"year": {"$gt": 2004}}, of_key("year", lambda v: v > 2004)),
            ({"year": {"$lte": np.int64(2004)}}, of_key("year", lambda v: v <= 2004)),
            ({"year": {"$in": [1999, 2010.5]}}, of_key("year", lambda v: v in (1999, 2010.5))),
            ({"year": {"$in": []}}, set()),
            ({"year": {"$nin": [1999, 2010.5]}}, of_key("year", lambda v: v == 2004, True)),
            ({"year": {"$nin": []}}, every),
            ({"year": {"$in": [1999, None]}}, of_key("year", lambda v: v == 1999, True)),
            ({"year": {"$nin": [1999, None]}}, of_key("year", lambda v: v != 1999)),
            ({"year": {"$eq": None}}, of_key("year", lambda v: False, True)),
            ({"year": {"$ne": None}}, of_key("year", lambda v: True)),
            ({"year": {"$exists": True}}, of_key("year", lambda v: True)),
            ({"year": {"$exists": False}}, of_key("year", lambda v: False, True)),
            ({"year": {"$between": [1999, 2004]}}, of_key("year", lambda v: 1999 <= v <= 2004)),
            ({"year": {"$not": {"$gte": 2004}}}, of_key("year", lambda v: v < 2004, True)),
            ({"year": {"$not": {"$not": {"$gte": 2004}}}}, of_key("year", lambda v: v >= 2004)),
            ({"lang": {"$like": "%e%"}}, {"0", "1", "3", "5"}),
            ({"lang": "it's"}, {"2"}),
            ({"lang": 'quo"te\nline'}, {"3"}),
            ({"lang": {"$contains": "[en]"}}, {"5"}),
            ({"lang": {"$contains": "e"}}, {"0", "1", "3", "5"}),
            ({"draft": False}, {"1"}),
            ({"draft": {"$ne": True}}, every - {"0"}),
            ({"at": {"$gt": datetime.date(2020, 6, 1)}}, {"1"}),
            ({"tags": {"$eq": ["a", "b"]}}, {"0"}),
            ({"a.b": 1}, {"3"}),
            ({'odd "name" --': "x' OR 1=1"}, {"4"}),
            ({"lang": "x' OR 1=1 --"}, set()),
            ({"_id": {"$in": ["1", "2"]}}, {"1", "2"}),
            ({"$or": [{"year": 1999}, {"lang": "de"}]}, {"0", "1"}),
            ({"$and": [{"year": 2004}, {"lang": "de"}], "draft": False}, {"1"}),
            ({"$not": {"year": 2004, "lang": "de"}}, every - {"1"}),
            ({"$not": {"$or": [{"year": 2004}, {"year": None}]}}, {"0", "4"}),
            ({"$not": {}}, set()),
            ({"$and": [{}, {"year": 1999}]}, {"0"}),
            ({"$or": [{}, {"year": 1999}]}, every),
        ):  # fmt: skip
            with self.subTest(str(where)):
                self.assertEqual(self.found(where), want)

    def test_contains(self) -> None:
        for item in ("a", "b", 'say "a"', "x,y", "x", "[x]", "a.*", "", 1, 2.5, True, 2):
            with self.subTest(item):
                self.assertEqual(self.found({"tags": {"$contains": item}}), of_key("tags", contains(item)))
                want = of_key("tags", lambda v, item=item: not contains(item)(v), True)
                self.assertEqual(self.found({"tags": {"$not": {"$contains": item}}}), want)

    def test_lists_and_nested_fields(self) -> None:
        rows: list[dict[str, Any]] = [
            {"tags": ["cat", "dog"], "n": [1, 9], "author": {"name": "Ann"}},
            {"tags": ["category"], "n": [4], "author.name": "Ann"},
            {"tags": "cat", "n": 5, "authors": [{"name": "Ann"}, {"name": "Bo", "langs": ["en", "de"]}]},
            {"tags": [], "n": [], "authors": [{"name": None}]},
            {"tags": None, "author": {"name": ["Bo", "Cy"]}},
            {"tags": [["cat"], {"k": "v"}], "nested": {"x": 3, "deep": {"y": [1, 2]}}},
            {"tags": ["", "[1] is cited"]},
            {"tags": "[1] a cat is cited [2]"},
        ]
        index = Index(None).add_documents([str(i) for i in range(len(rows))], [np.eye(4)] * len(rows), rows)
        self.addCleanup(index.close)
        for where, want in (
            ({"tags": "cat"}, "02"),
            ({"tags": ["cat", "category"]}, "012"),
            ({"tags": {"cat", "dog"}}, "02"),
            ({"tags": {"cat": 1, "dog": 2}.keys()}, "02"),
            ({"tags": {"$in": ("dog",)}}, "0"),
            ({"tags": {"$all": ["cat", "dog"]}}, "0"),
            ({"tags": {"$all": ["cat"]}}, "02"),
            ({"tags": {"$all": []}}, "01234567"),
            ({"tags": {"$ne": "cat"}}, "134567"),
            ({"tags": {"$nin": ["cat", "category"]}}, "34567"),
            ({"tags": {"$not": {"$all": ["cat", "dog"]}}}, "1234567"),
            ({"tags": {"$contains": "cat"}}, "027"),  # no part of an element
            ({"tags": {"$not": {"$contains": "cat"}}}, "13456"),
            ({"tags": {"$contains": "CAT"}}, ""),
            ({"tags": {"$like": "CAT%"}}, "012"),
            ({"tags": {"$ilike": "CAT"}}, "02"),
            ({"tags": {"$eq": ["cat", "dog"]}}, "0"),
            ({"tags": {"$eq": []}}, "3"),
            ({"tags": None}, "4"),
            ({"tags": {"$exists": True}}, "0123567"),
            ({"n": {"$gt": 4}}, "02"),
            ({"n": {"$between": [2, 8]}}, "12"),
            ({"n": range(4, 6)}, "12"),
            ({"n": {"$in": range(4, 6)}}, "12"),
            ({"n": {"$contains": 5}}, "2"),
            ({"author.name": "Ann"}, "01"),
            ({"author.name": ["Bo"]}, "4"),
            ({"authors.name": "Bo"}, "2"),
            ({"authors.langs": {"$in": ["de", "fr"]}}, "2"),
            ({"authors.name": {"$ne": "Ann"}}, "0134567"),
            ({"nested.x": 3}, "5"),
            ({"nested.deep.y": {"$gte": 2}}, "5"),
        ):  # fmt: skip
            with self.subTest(str(where)):
                self.assertEqual("".join(index.ids(where)), want)
        empty = from_llama_index(SimpleNamespace(filters=[SimpleNamespace(key="tags", value=None, operator="is_empty")], condition="and"))
        assert empty is not None
        self.assertEqual(index.ids(*empty), ["3", "4"])

    def test_what_is_no_condition(self) -> None:
        def asked(where: Any, *parameters: Any) -> Callable[[], Any]:
            return lambda: self.index.ids(where, *parameters)

        for error, want, call in (
            (TypeError, "the condition is of type int; want a text or a dictionary", asked(5)),
            (TypeError, "the condition is of type list; want a text or a dictionary", asked([{"year": 1}])),
            (TypeError, "the condition is of type function; want a text or a dictionary", asked(lambda: 1)),
            (ValueError, "the condition is empty", asked(" ")),
            (TypeError, r"update\(\) needs a condition", lambda: self.index.update(where=None, values={})),  # type: ignore[arg-type]
            (TypeError, r"delete\(\) needs either ids or a condition", lambda: self.index.delete(where=None)),
            (TypeError, "the condition is of type int", lambda: self.index.update(where=5, values={})),  # type: ignore[arg-type]
            (TypeError, "the condition is of type set", lambda: self.index.delete(where={"a"})),  # type: ignore[arg-type]
            (TypeError, "parameters is of type NoneType; want a list with a value for each", asked("year > ?", None)),
            (TypeError, "parameters is of type int; want a list", asked("year > ?", 5)),
            (TypeError, "parameters is of type dict; want a list", asked("year > ?", {"year": 5})),
            (TypeError, "parameters is of type set; want a list", asked("year > ?", {5})),
            (TypeError, "parameters is one text; want a list", asked("year > ?", "5")),
            (TypeError, "parameter 0 is of type range; want one value for each", asked("year IN (?)", [range(3)])),
            (TypeError, "key 'year' is of type generator; want a value, or a list", asked({"year": (y for y in (1, 2))})),
            (TypeError, "key 'year' is of type function; want a value, or a list", asked({"year": lambda: 1})),
            (TypeError, "key 'year' is of type bytes; want a value, or a list", asked({"year": b"x"})),
            (ValueError, "key 'year' is range.*more than 100000: use .'.gte'", asked({"year": range(1 << 40)})),
            (TypeError, r"key 'year', item 1 is a list; want one value", asked({"year": [1, [2]]})),
            (ValueError, "key 'year' is nan, which is not a value: use None", asked({"year": float("nan")})),
            (ValueError, "key 'nested': 'x' is not an operator.*use its path as the key", asked({"nested": {"x": 3}})),
            (TypeError, "has the key 1, of type int: keys are texts", asked({1: 2})),
            (TypeError, r"\$all is of type str; want a list", asked({"tags": {"$all": "a"}})),
        ):  # fmt: skip
            with self.subTest(want), self.assertRaisesRegex(error, want):
                call()
        self.assertEqual(len(self.index), len(ROWS))

    def test_what_is_wrong_with_a_list_of_haystack(self) -> None:
        for bad in (None, "x", {"field": "a", "operator": "==", "value": 1}, 7):
            with self.assertRaisesRegex(ValueError, "conditions is of type .*want a list"):
                from_haystack({"operator": "AND", "conditions": bad})

    def test_searches_changes_and_none(self) -> None:
        query = np.eye(4)
        self.assertEqual(len(self.index.search(query, where={})), len(ROWS))
        self.assertEqual({h["id"] for h in self.index.search(query, where={"year": {"$gt": 2004}})}, {"4"})
        self.assertEqual(self.index.explain("0", query, where={"year": {"$gt": 2004}}).stage, "filtered")
        self.assertEqual(self.index.similar("0", where={"$not": {}}), [])
        for change in (lambda: self.index.delete(where={}), lambda: self.index.update(where={}, values={"n": 1})):
            self.assertRaises(TypeError, change)
        self.assertEqual(len(self.index), len(ROWS))

    def test_llama_index(self) -> None:
        def one(key: str, value: Any, op: str = "==") -> Any:
            return SimpleNamespace(key=key, value=value, operator=SimpleNamespace(value=op))

        def several(*filters: Any, condition: Any = "and") -> Any:
            return SimpleNamespace(filters=list(filters), condition=condition)

        every = {str(i) for i in range(len(ROWS))}
        for filters, want in (
            (None, every),
            (several(), every),
            (several(one("year", 2004)), {"1", "5"}),
            (several(one("year", 2004, "!=")), of_key("year", lambda v: v != 2004, True)),
            (several(one("year", [1999], "nin")), of_key("year", lambda v: v != 1999, True)),
            (several(one("year", 2000, ">"), one("lang", "de")), {"1"}),
            (several(one("year", 1999), one("lang", "de"), condition="or"), {"0", "1"}),
            (several(one("year", 2004), one("draft", True), condition="not"), {"2", "3", "4"}),
            (several(several(one("year", 1999), condition="or"), several(one("lang", "de"), condition="not")), {"0"}),
            (several(one("tags", "a", "contains")), of_key("tags", contains("a"))),
            (several(one("tags", ["b", "x,y"], "any")), {"0", "1", "3"}),
            (several(one("tags", ["b", "a"], "all")), {"0", "3"}),
            (several(one("lang", "E", "text_match")), set()),
            (several(one("lang", "E", "text_match_insensitive")), {"0", "1", "3", "5"}),
            (several(one("tags", None, "is_empty")), {"2"}),
            (several(one("lang", None, "is_empty")), {"4"}),
            (several(one("year", None, "is_empty")), {"2", "3"}),
        ):  # fmt: skip
            with self.subTest(str(filters)):
                self.assertEqual(self.found(from_llama_index(filters) or None), want)
        for error, want, bad in (
            (ValueError, "unknown operator '~'", one("year", 1, "~")),
            (ValueError, "unknown condition 'xor'", several(condition="xor")),
            (TypeError, "want MetadataFilters", {"year": 1}),
            (TypeError, "want a list", one("year", 1, "in")),
        ):
            with self.subTest(want), self.assertRaisesRegex(error, want):
                from_llama_index(bad)

    def test_haystack(self) -> None:
        index = Index(None).add_documents([str(i) for i in range(len(ROWS))], [np.eye(4)] * len(ROWS), [{"meta": row, "content": "c"} for row in ROWS])
        self.addCleanup(index.close)

        def one(op: str, value: Any, key: str = "meta.year") -> dict[str, Any]:
            return {"field": key, "operator": op, "value": value}

        def several(op: str, *conditions: Any) -> dict[str, Any]:
            return {"operator": op, "conditions": list(conditions)}

        every = {str(i) for i in range(len(ROWS))}
        signs = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq}
        for filters, want in (
            (None, every),
            ({}, every),
            *((one(sign, 2004), of_key("year", lambda v, test=test: test(v, 2004))) for sign, test in signs.items()),
            (one("!=", 2004), of_key("year", lambda v: v != 2004, True)),
            (one("not in", [2004, None]), {"0", "4"}),
            (one("in", [2004, None]), {"1", "2", "3", "5"}),
            (one("==", None), {"2", "3"}),
            (one(">", None), set()),
            (one("==", 'quo"te\nline', "meta.lang"), {"3"}),
            (one("==", ["a", "b"], "meta.tags"), {"0"}),
            (one("==", "3", "id"), {"3"}),
            (several("NOT", one(">", 2000)), {"0", "2", "3"}),
            (several("NOT", one("==", 2004), one("==", "de", "meta.lang")), every - {"1"}),
            (several("NOT", several("OR", one("==", 2004), one("==", None))), {"0", "4"}),
            (several("AND", one(">=", 2000), several("OR", one("==", "de", "meta.lang"), one(">", 2004))), {"1", "4"}),
            (several("AND", {}, one("==", 1999)), {"0"}),
        ):  # fmt: skip
            with self.subTest(str(filters)):
                self.assertEqual(set(index.ids(*(from_haystack(filters) or (None,)))), want)
        for bad in (one("~", 1), one(">", "x"), one("in", (1, 2)), several("NAND", one("==", 1)), several("AND"), {"field": "meta.year", "value": 1}):
            with self.subTest(str(bad)), self.assertRaises((TypeError, ValueError)):
                from_haystack(bad)


if __name__ == "__main__":
    unittest.main()
