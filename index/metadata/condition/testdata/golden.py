"""Writes golden.json: what SQLite says of conditions, from which the tests of this
package take their answers. Run it in this folder: python3 golden.py

Every document is a table of one row, whose columns have the types of its values, as
an engine gives them to the columns of metadata; so the answer for a document does not
depend on the others. A condition is true ("1"), false ("0") or unknown ("n").
"""

import json
import random
import re
import sqlite3

FIELDS = ["n", "r", "s", "u", "b", "list", "mixed"]

INTS = [0, 1, 2, 3, -1, 10, 42, 2024, 2**53 + 1, 2**53, 2**62, -(2**63), 2**63 - 1]
REALS = [0.5, 1.0, 3.0, -2.5, 0.1, 1e20, 1e15, 123456789012345.0, 1e-5, 0.0001, 2.0**53, 1e300, 2.5e-7, -1.0]
TEXTS = ["", "a", "A", "abc", "ABC", "b", "3", "3.0", "03", " 3 ", "1e0", "10", "9", "1.0", "a%c", "a_c", "äbc",
         "Äbc", "日本語", "en", "EN", "de", "the quick brown fox", "50%", "0.5", ".5", "5.", "+3", "--3", "1e999",
         "9007199254740993", "[1,2]", "it's", "x\ny", "1.0e+20", "-"]
PATTERNS = ["%", "a%", "%c", "_bc", "%B%", "a\\%c", "", "_", "3%", "%.0", "%quick%fox", "___", "%本%", "a%%c", "%_%",
            "ä%", "Ä%", "1%", "%e+%", "[%", "true", "x_y", "%'s"]
REGEXPS = ["^a", "b+", "^$", "[0-9]+", "c$", "(?i)ABC", "^3(\\.0)?$", "quick.*fox"]
LISTS = [[1, 2], ["a", "b"], [], [1.5, "x", None], {"k": [1]}]


def value(rng, field):
    if rng.random() < 0.12:
        return None
    pick = {
        "n": lambda: rng.choice(INTS),
        "r": lambda: rng.choice(REALS),
        "s": lambda: rng.choice(TEXTS),
        "u": lambda: rng.choice(["en", "de", "fr", "EN"]),
        "b": lambda: rng.random() < 0.5,
        "list": lambda: rng.choice(LISTS),
    }
    if field == "mixed":
        field = rng.choice(list(pick))
    return pick[field]()


def parameter(rng):
    return rng.choice([
        lambda: None, lambda: rng.choice(INTS), lambda: rng.choice(INTS), lambda: rng.choice(REALS),
        lambda: rng.choice(TEXTS), lambda: rng.choice(TEXTS), lambda: rng.random() < 0.5, lambda: "[1,2]",
    ])()


def field(rng):
    name = rng.choice(FIELDS + ["missing", "_id", "_subset_"])
    return rng.choice([name, name, name.upper(), '"' + name + '"'])


def test(rng, params):
    name = field(rng)
    no = rng.choice(["", "", "NOT "])
    kind = rng.randrange(9)
    if kind <= 3:
        params.append(parameter(rng))
        return name + rng.choice([" = ", "=", " != ", " <> ", " < ", " <= ", " > ", " >= "]) + "?"
    if kind == 4:
        params.append(rng.choice([rng.choice(PATTERNS), rng.choice(PATTERNS), parameter(rng)]))
        return f"{name} {no}LIKE ?"
    if kind == 5:
        params.append(rng.choice(REGEXPS + [None]))
        return f"{name} {no}REGEXP ?"
    if kind == 6:
        params += [parameter(rng), parameter(rng)]
        return f"{name} {no}between ? and ?"
    if kind == 7:
        n = rng.choice([0, 1, 2, 5, 9])
        params += [parameter(rng) for _ in range(n)]
        return f"{name} {no}IN (" + ", ".join("?" * n) + ")"
    return f"{name} IS {no}NULL"


def condition(rng, params, depth=0):
    if depth == 3 or rng.random() < 0.35 + 0.15 * depth:
        text = test(rng, params)
    else:
        word = rng.choice([" AND ", " OR ", " and "])
        text = word.join(condition(rng, params, depth + 1) for _ in range(rng.choice([2, 2, 3])))
        if rng.random() < 0.5:
            text = "(" + text + ")"
    if rng.random() < 0.2:
        text = "NOT " + text if rng.random() < 0.5 else "not (" + text + ")"
    return text


def sql(v):
    """A value as an engine stores it."""
    if isinstance(v, bool):
        return int(v)
    if isinstance(v, (list, dict)):
        return json.dumps(v, separators=(",", ":"))
    return v


def column_type(v):
    v = sql(v)
    return {int: "INTEGER", float: "REAL", str: "TEXT"}.get(type(v), "TEXT")


def regexp(pattern, text):
    if pattern is None or text is None:
        return None
    if isinstance(text, (int, float)):
        text = str(db.execute("SELECT CAST(? AS TEXT)", (text,)).fetchone()[0])
    return re.search(pattern, text) is not None


db = sqlite3.connect(":memory:")
db.create_function("REGEXP", 2, regexp, deterministic=True)


def main():
    rng = random.Random(20240611)
    documents = [{f: value(rng, f) for f in FIELDS if rng.random() < 0.9} for _ in range(60)]
    for i, d in enumerate(documents):
        columns = {**{f: d.get(f) for f in FIELDS}, "missing": None, "_id": f"doc{i}", "_subset_": i}
        db.execute(f"CREATE TABLE d{i} (" + ", ".join(f'"{f}" {column_type(v)}' for f, v in columns.items()) + ")")
        db.execute(f"INSERT INTO d{i} VALUES (" + ",".join("?" * len(columns)) + ")", [sql(v) for v in columns.values()])
    cases, escapes = [], random.Random(20250301)
    for n in range(1500):
        params = []
        if n < 1200:
            text = condition(rng, params)
        elif n % 3 == 0:
            params.append(parameter(escapes))
            text = field(escapes) + escapes.choice(["==", " == "]) + "?"
        else:
            pattern = "".join(escapes.choice(["%", "_", "\\", "a", "b", "A", "c", "5", "0", "!", "ä", "it"]) for _ in range(escapes.randrange(6)))
            params += [escapes.choice([pattern, escapes.choice(PATTERNS)]), escapes.choice(["\\", "\\", "!", "a", "%", "_", "ä", 5, None])]
            text = f"{field(escapes)} {escapes.choice(['', 'NOT '])}LIKE ? {escapes.choice(['ESCAPE', 'escape'])} ?"
        answers = ""
        for i in range(len(documents)):
            answer = db.execute(f"SELECT ({text}) FROM d{i}", [sql(p) for p in params]).fetchone()[0]
            answers += {None: "n", 0: "0", 1: "1"}[answer]
        cases.append({"condition": text, "params": params, "truth": answers})
    with open("golden.json", "w", encoding="utf-8") as f:
        lines = lambda key, items: f'"{key}": [\n' + ",\n".join(json.dumps(x, ensure_ascii=False) for x in items) + "\n]"
        f.write("{" + f'"sqlite": "{sqlite3.sqlite_version}",\n' + lines("documents", documents) + ",\n" + lines("cases", cases) + "}\n")


main()
