"""What measure_texts.sh needs beside plaid: files to measure with, and how processes end."""
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import time


def read_tensors(path):
    import numpy as np
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    head.pop("__metadata__", None)
    kinds = {"F16": np.float16, "F32": np.float32}
    return {k: np.frombuffer(data[slice(*v["data_offsets"])], kinds[v["dtype"]]).reshape(v["shape"]).astype(np.float32) for k, v in head.items()}


def write_tensors(path, tensors):
    import numpy as np
    head, data, at = {}, [], 0
    for k, v in tensors.items():
        b = np.ascontiguousarray(v, np.float16).tobytes()
        head[k] = {"dtype": "F16", "shape": list(v.shape), "data_offsets": [at, at + len(b)]}
        data.append(b)
        at += len(b)
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def wide(source, to):
    """Makes a BERT of 6 × 384 of one of 4 × 192, whose vectors are the same but for rounding:
    everything is there twice, weights are halved (exactly), and two layers more add nothing to
    what they are given. It has the shape of colbert-mini, and takes as long."""
    import numpy as np
    old = read_tensors(os.path.join(source, "model.safetensors"))
    new = {}
    for k, v in old.items():
        if k.endswith("dense.weight") or ".self." in k and k.endswith("weight"):
            v = np.block([[v, v], [v, v]]) / 2
        elif k == "linear.weight":
            v = np.hstack([v, v]) / 2
        elif v.ndim == 2:  # embeddings
            v = np.hstack([v, v])
        else:
            v = np.concatenate([v, v])
        new[k] = v
    last, norms = "bert.encoder.layer.3.", ("output.LayerNorm.weight", "output.LayerNorm.bias")
    final = [new[last + n] for n in norms]
    new[last + norms[0]], new[last + norms[1]] = np.ones(384), np.zeros(384)
    for layer in (4, 5):
        for k in [k for k in new if k.startswith("bert.encoder.layer.0.")]:
            v = new[k]
            if "output.dense" in k:  # nothing is added
                v = np.zeros_like(v)
            elif "LayerNorm" in k:  # and what is normed stays so
                v = np.full_like(v, k.endswith("weight"))
            new[k.replace(".0.", ".%d." % layer, 1)] = v
    for n, v in zip(norms, final):
        new["bert.encoder.layer.5." + n] = v
    os.makedirs(to, exist_ok=True)
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    config.update(hidden_size=384, intermediate_size=1536, num_attention_heads=12, num_hidden_layers=6)
    with open(os.path.join(to, "config.json"), "w") as f:
        json.dump(config, f)
    for name in ("artifact.metadata", "tokenizer.json"):
        with open(os.path.join(source, name), "rb") as f, open(os.path.join(to, name), "wb") as g:
            g.write(f.read())
    write_tensors(os.path.join(to, "model.safetensors"), new)


def passages(corpus, to, count):
    """Draws passages of 100 words from the texts of a collection, 20 words at a time."""
    rng = random.Random(1)
    docs = []
    with open(corpus) as f:
        for line in f:
            d = json.loads(line)
            words = (d.get("title", "") + " " + d["text"]).split()
            if len(words) >= 20:
                docs.append(words)
    with open(to, "w") as f:
        for i in range(int(count)):
            words = []
            for _ in range(5):
                d = docs[int(rng.random() * len(docs))]
                at = int(rng.random() * (len(d) - 19))
                words += d[at:at + 20]
            name = "pkg-%d/usr/share/doc/%d.html#%d" % (i // 900, i // 30, i % 30)
            f.write('{"_id": "%s", "title": "Section %d", "text": %s}\n' % (name, i // 30, json.dumps(" ".join(words))))


def killed(path, size, *command):
    """Runs a command and kills it when a file has so many bytes."""
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while p.poll() is None:
        try:
            if os.stat(path).st_size >= int(size):
                p.kill()
        except OSError:
            pass
        time.sleep(0.002)
    print("ended with %d; %s has %d bytes" % (p.returncode, os.path.basename(path), os.stat(path).st_size if os.path.exists(path) else 0))


def used(*command):
    """Runs a command, and says how long it took, how much memory it had, and how busy the GPU was."""
    busy = None
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "50"]
        busy = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
    begin = time.time()
    code = subprocess.call(command)
    if busy:
        busy.terminate()
        use = [int(x) for x in busy.communicate()[0].split() if x.isdigit()]
        print("GPU busy %.0f %% of the time" % (sum(use) / max(len(use), 1)))
    u = resource.getrusage(resource.RUSAGE_CHILDREN)
    print("%.1f s, exit %d, ru_maxrss %d MiB, user %.1f s, system %.1f s" % (time.time() - begin, code, u.ru_maxrss // 1024, u.ru_utime, u.ru_stime))


def measures(folder):
    """Prints nDCG@10 of what plaid beir wrote for collections, beside that of the processor's float32."""
    with open(os.path.join(os.environ["CARD"], "f32.tsv")) as f:
        exact = dict(line.split() for line in f)
    for name in sorted(os.listdir(folder)):
        try:
            with open(os.path.join(folder, name)) as f:
                r = json.load(f)
            m = r["measures"]["nDCG@10"]
        except (ValueError, KeyError) as e:
            print("%s: %r" % (name, e))
            continue
        want = float(exact.get(name, "nan"))
        print("%s: nDCG@10 %.4f, of f32 on the processor %.4f, difference %+.4f; %.1f s" % (name, m, want, m - want, r["seconds"]["total"]))


def unpack(archive, to):
    with tarfile.open(archive) as t:
        t.extractall(to, filter="data")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
