#!/usr/bin/env python3
"""Speed of the Python package tokenizers on one thread, beside that of the package here.

  RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false python speed.py TOKENIZER_JSON LINES_JSON_GZ

Seconds are of the processor. Cold: a tokenizer that has just been read; warm: the best of four more rounds.
"""
import gzip, json, sys, time
from tokenizers import Tokenizer

lines = json.load(gzip.open(sys.argv[2]))["real"]
size = sum(len(l.encode()) for l in lines)
for how in ("encode_batch", "encode_batch_fast"):
    t = Tokenizer.from_file(sys.argv[1]); t.no_truncation(); t.no_padding()
    seconds = []
    for _ in range(5):
        begin = time.process_time()
        getattr(t, how)(lines, add_special_tokens=False)
        seconds.append(time.process_time() - begin)
    print("%s: cold %.1f MB/cpu-s, warm %.1f MB/cpu-s" % (how, size / seconds[0] / 1e6, size / min(seconds[1:]) / 1e6))
