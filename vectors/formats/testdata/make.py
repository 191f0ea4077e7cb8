# Makes the files beside it, with pyarrow 26.0.1 and datasets 5.2.0.
# Documents: 0 has tokens (i+1, -i) for i in 0..2, 1 has none, 2 has one token (0.5, 0.25).
import datasets, pyarrow as pa, pyarrow.parquet as pq, numpy as np, shutil, os
import pyarrow.feather as feather

here = os.path.dirname(os.path.abspath(__file__))
docs = [[[1.0, 0.0], [2.0, -1.0], [3.0, -2.0]], [], [[0.5, 0.25]]]
ids, titles = ["a", "b", "c"], ["A", None, "C \u00e9"]
lists = lambda t: pa.list_(pa.list_(t))
fixed = lambda t: pa.list_(pa.list_(t, 2))
table = lambda t, name="vectors": pa.table({"_id": ids, "title": titles, "year": [1, 2, 3], name: pa.array(docs, t)})
pq.write_table(table(lists(pa.float32())), f"{here}/f32.parquet", row_group_size=2)
pq.write_table(table(fixed(pa.float64()), "embeddings"), f"{here}/fixed64.parquet", compression="zstd")
pq.write_table(table(pa.large_list(pa.list_(pa.float32())), "tokens"), f"{here}/large.parquet", compression="gzip", data_page_version="2.0")
feather.write_feather(table(lists(pa.float32())), f"{here}/lz4.feather", compression="lz4")
half = pa.array([[np.array(t, dtype="float16") for t in d] for d in docs], lists(pa.float16()))
with pa.OSFile(f"{here}/half.arrow", "wb") as f, pa.ipc.new_file(f, pa.schema([("vectors", half.type)])) as w:
    w.write_table(pa.table({"vectors": half}), max_chunksize=1)
shutil.rmtree(f"{here}/saved", ignore_errors=True)
d = datasets.Dataset.from_dict({"id": [7, 8, 9], "title": titles, "vectors": docs})
d.save_to_disk(f"{here}/saved", num_shards=2)
os.makedirs(f"{here}/hub/data", exist_ok=True)
for i in range(2):
    pq.write_table(table(lists(pa.float32())).slice([0, 2][i], [2, 1][i]), f"{here}/hub/data/train-0000{i}-of-00002.parquet")
print(pa.__version__, datasets.__version__)
