#!/usr/bin/env python3
"""Answers the test TestAgainstPython: reads JSON objects, one a line, {"tokenizer": contents of a tokenizer.json} or
{"lines": [...]}, and writes for the latter {"ids": [...]}, those of each line."""
import json, sys
from tokenizers import Tokenizer

t = None
for request in sys.stdin:
    q = json.loads(request)
    if "tokenizer" in q:
        t = Tokenizer.from_str(q["tokenizer"]); t.no_truncation(); t.no_padding()
        continue
    print(json.dumps({"ids": [t.encode(line, add_special_tokens=False).ids for line in q["lines"]]}), flush=True)
