"""Writes WORK/report.md, tables of what run.sh measured, and prints it.

    report.py DATA WORK
"""
import json
import math
import sys
from pathlib import Path
from statistics import median

BUSY = 0.2  # processors used by others from which a time is marked

NAMES = {"plaid": "plaid", "next-plaid": "next-plaid 1.8.5", "xtr-warp": "xtr-warp-rs 2.1.0", "fast-plaid": "fast-plaid 1.7.0"}
SETTINGS = {
    "plaid.default": "default",
    "next-plaid.default": "default (8 probes, 4,096 scores)",
    "next-plaid.narrow": "4 probes, 1,024 scores",
    "xtr-warp.default": "default",
    "xtr-warp.wide": "nprobe 32, bound 2,048",
    "fast-plaid.default": "default (8 probes, 4,096 scores)",
}


def table(head, rows):
    return ["| " + " | ".join(r) + " |" for r in [head, ["---"] * len(head), *rows]] + [""]


def figure(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def spread(samples, mark=""):
    s = sorted(samples)
    return f"{figure(median(s))}{mark} ({figure(s[0])}–{figure(s[-1])})"


class Results:
    def __init__(self, work):
        self.work = work
        self.of = {p.name[:-5]: json.loads(p.read_text()) for p in sorted((work / "results").glob("*.json"))}

    def mark(self, name):
        return "\\*" if self.of[name]["others"] > BUSY else ""

    def kernels(self):
        """(work, engine, how, samples, mark) of all kernels, ours first; the samples of all rounds together."""
        rows = {}
        for name in sorted((n for n in self.of if n.startswith("kernels.")), key=lambda n: not n.startswith("kernels.plaid.")):
            for r in self.of[name]["result"]:
                samples, mark = rows.get((r["work"], r["engine"], r["how"]), ([], ""))
                rows[r["work"], r["engine"], r["how"]] = samples + r["samples"], mark or self.mark(name)
        return [(*key, *value) for key, value in rows.items()]


def kernel_table(rows, title, works, faster_is_more=False):
    """A column a work; after its figure, how often plaid's best tier is faster."""
    keys, cells = [], {}
    for work, engine, how, samples, mark in rows:
        if work in works:
            if (engine, how) not in keys:
                keys.append((engine, how))
            cells[engine, how, work] = samples, mark
    if not keys:
        return []
    tiers = [t for t in ("amx", "avx512", "avx2", "neon") if any(e == f"plaid, {t}" for e, _ in keys)]
    ours = next((k for k in keys if tiers and k[0] == f"plaid, {tiers[0]}"), None)
    out = []
    for key in keys:
        row = [*key]
        for work in works:
            if (*key, work) not in cells:
                row.append("–")
                continue
            samples, mark = cells[*key, work]
            text = spread(samples, mark)
            if ours and not key[0].startswith("plaid") and (*ours, work) in cells:
                ratio = median(samples) / median(cells[*ours, work][0])
                text += f", {1 / ratio if faster_is_more else ratio:.1f} ×"
            row.append(text)
        out.append(row)
    return [f"### {title}", ""] + table(["engine", "function", *works.values()], out)


class Collection:
    def __init__(self, folder):
        lines = lambda name: (folder / name).read_text().splitlines()
        self.docs, self.queries = lines("doc_ids.txt"), lines("query_ids.txt")
        self.tokens = npy_rows(folder / "docs.npy")
        self.exact, self.qrels = {}, {}
        for line in lines("exact-top100.tsv"):
            query, doc = line.split("\t")[:2]
            self.exact.setdefault(query, []).append(doc)
        for line in lines("qrels.tsv")[1:]:
            query, doc, grade = line.split()
            if int(grade) > 0:
                self.qrels.setdefault(query, {})[doc] = int(grade)

    def quality(self, runs):
        """recall@10 and @100 of exact MaxSim, and nDCG@10 over the judged queries of runs {query: [document]}."""
        share = lambda q, k: len(set(runs[q][:k]) & set(self.exact[q][:k])) / k
        recall = [sum(share(q, k) for q in runs) / len(runs) for k in (10, 100)]
        judged = [q for q in runs if q in self.qrels]
        return *recall, sum(ndcg(runs[q], self.qrels[q]) for q in judged) / len(judged)


def npy_rows(path):
    with open(path, "rb") as f:
        header = f.read(256).decode("latin-1")
    return int(header.split("'shape': (")[1].split(",")[0])


def ndcg(docs, grades, k=10):
    dcg = lambda gains: sum(g / math.log2(i + 2) for i, g in enumerate(gains))
    return dcg([grades.get(d, 0) for d in docs[:k]]) / dcg(sorted(grades.values(), reverse=True)[:k])


def quality_cells(q):
    return [f"{x:.3f}".lstrip("0") for x in q]


def search_table(results, name, collection):
    rows = [["exact float MaxSim", "", "", "", "", *quality_cells(collection.quality(collection.exact))]]
    for engine in NAMES:
        for setting in ("default", "narrow", "wide"):
            for nbits in "24":
                key = f"search.{name}.{engine}.{nbits}.{setting}"
                if key not in results.of:
                    continue
                r = results.of[key]["result"]
                runs = {q: [collection.docs[d] for d in hits] for q, hits in zip(collection.queries, r["hits"])}
                at = lambda p: [sorted(times)[min(len(times) * p // 100, len(times) - 1)] for times in r["latency_ms"]]
                cells = [spread(at(50), results.mark(key)), figure(median(at(95)))]
                rows.append([NAMES[engine], nbits, SETTINGS[f"{engine}.{setting}"], *cells, *quality_cells(collection.quality(runs))])
    head = ["engine", "bits", "setting", "p50 ms", "p95 ms", "recall@10", "recall@100", "nDCG@10"]
    return [f"### {name}: search, k = 100, one query at a time on one core", ""] + table(head, rows)


def throughput_table(results, name, collection):
    rows = []
    for engine in ("plaid", "next-plaid"):
        for nbits in "24":
            key = f"throughput.{name}.{engine}.{nbits}"
            if key in results.of:
                r = results.of[key]["result"]
                runs = {q: [collection.docs[d] for d in hits] for q, hits in zip(collection.queries, r["hits"])}
                rows.append([NAMES[engine], nbits, spread(r["queries_per_second"], results.mark(key)), *quality_cells(collection.quality(runs))])
    if not rows:
        return []
    head = ["engine", "bits", "queries a second", "recall@10", "recall@100", "nDCG@10"]
    return [f"### {name}: search, k = 100, all queries at once on all cores", ""] + table(head, rows)


def size(path):
    return path.stat().st_size if path.is_file() else sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


def build_table(results, name, collection):
    rows = []
    for engine in NAMES:
        for nbits in "24":
            key = f"build.{name}.{engine}.{nbits}"
            if key not in results.of:
                continue
            r = results.of[key]
            seconds = r["wall"] if engine == "plaid" else r["result"]["seconds"]
            per_token = size(results.work / "index" / f"{name}.{engine}.{nbits}") / collection.tokens
            rows.append([NAMES[engine], nbits, f"{r['result']['centroids']:,}", figure(seconds) + results.mark(key), figure(r["cpu"]), f"{r['rss_mib']:,.0f}", f"{per_token:.1f}"])
    head = ["engine", "bits", "centroids", "seconds", "processor seconds", "peak RSS MiB", "bytes a token"]
    return [f"### {name}: build, all cores", ""] + table(head, rows)


def processor():
    with open("/proc/cpuinfo") as f:
        fields = dict(line.split(":", 1) for line in f.read().split("\n\n")[0].splitlines() if ":" in line)
    fields = {k.strip(): v.strip() for k, v in fields.items()}
    return f"{fields.get('model name', 'unknown processor')} (family {fields.get('cpu family')}, model {fields.get('model')})"


def main(data, work):
    results = Results(work)
    rows = results.kernels()
    out = [f"Processor: {processor()}.", ""]
    out += kernel_table(rows, "Exact scores: ns a token", {
        "rerank 2 bits hot": "2 bits, hot", "rerank 2 bits random": "2 bits, K = 65,536, random",
        "rerank 4 bits hot": "4 bits, hot", "rerank 4 bits random": "4 bits, K = 65,536, random"})
    out += kernel_table(rows, "Approximate scores: ns a token", {
        "approximate hot": "hot", "approximate random": "K = 65,536, random",
        "approximate cranfield": "Cranfield, K = 4,096", "approximate scifact": "SciFact, K = 16,384"})
    out += kernel_table(rows, "Centroid scores: ms", {"centroid scores K=65536": "K = 65,536"})
    out += kernel_table(rows, "Nearest centroid: GFLOP/s", {
        "nearest cranfield K=4096": "Cranfield, K = 4,096", "nearest scifact K=16384": "SciFact, K = 16,384"}, True)
    shapes = {"32 1000x40-160": "32 × 1,000 × 40–160", "32 64x256-256": "32 × 64 × 256", "32 16x1024-1024": "32 × 16 × 1,024",
              "128 8x1024-1024": "128 × 8 × 1,024", "1024 4x1024-1024": "1,024 × 4 × 1,024"}
    for name in "float32", "bfloat16":
        out += kernel_table(rows, f"Plain vectors, {name}: ns a token", {f"plain {name} {s}": title for s, title in shapes.items()})
    for name in "cranfield", "scifact":
        if (data / name / "docs.npy").exists():
            collection = Collection(data / name)
            out += search_table(results, name, collection) + throughput_table(results, name, collection)
            out += build_table(results, name, collection)
    text = "\n".join(out)
    (work / "report.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
