"""Writes plaid_ids_to_documents_ids as PyLate does, for the 46 documents of ../real/fast-plaid: a pickle, and the SQLite
file of sqlitedict, with pages small enough for a tree and an id that does not fit one; removed lacks two of them."""

import os
import pickle
import sqlite3

for name, removed in ("plaid_ids_to_documents_ids", ()), ("removed", (0, 40)):
    path = name + ".sqlite"
    if os.path.exists(path):
        os.remove(path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA page_size = 512")
    db.execute('CREATE TABLE IF NOT EXISTS "unnamed" (key TEXT PRIMARY KEY, value BLOB)')
    ids = {}
    for n in range(46):
        doc = "long " + "x" * 1500 if n == 7 else n + 1000 if n == 9 else f"doc {n}"
        if n not in removed:
            ids[n] = doc
        value = sqlite3.Binary(pickle.dumps(doc, protocol=pickle.HIGHEST_PROTOCOL))
        db.execute('REPLACE INTO "unnamed" (key, value) VALUES (?,?)', (n, value))
    db.commit()
    for n in removed:
        db.execute('DELETE FROM "unnamed" WHERE key = ?', (n,))
    db.commit()
    db.close()
    with open(name + ".pkl", "wb") as f:
        pickle.dump(ids, f)
