#!/usr/bin/env python3
"""Answers the test TestAgainstPython: reads JSON objects, one a line, {"tokenizer": contents of a tokenizer.json} or
{"lines": [...]}, and writes for each {"ids": [...], "places": [...]}, the ids and the places in bytes for each line."""
import json, sys
from tokenizers import Tokenizer

t = None
for request in sys.stdin:
    q = json.loads(request)
    if "tokenizer" in q:
        t = Tokenizer.from_str(q["tokenizer"]); t.no_truncation(); t.no_padding()
        continue
    ids, places = [], []
    for line in q["lines"]:
        e = t.encode(line, add_special_tokens=False)
        at = [0]
        for c in line: at.append(at[-1] + len(c.encode()))
        ids.append(e.ids); places.append([[at[a], at[b]] for a, b in e.offsets])
    print(json.dumps({"ids": ids, "places": places}), flush=True)
