#!/usr/bin/env python3
"""Writes the seeds of the fuzz target `database` into tests/fuzz/corpus/database: small pages, a row or more in every table.

    scripts/build && tests/fuzz/database_corpus.py build/release/bin

The files are committed; run this when schemas/tuning-db.sql changes.
"""
import json
import pathlib
import sqlite3
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/fuzz/corpus/database"
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 16, "intermediate_size": 16,
         "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 16,
         "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
         "hidden_act": "silu", "torch_dtype": "bfloat16"}


def write(source, name, *changes):
    """A copy of database `source` with pages of 512 bytes and no log, changed by SQL."""
    to = CORPUS / f"{name}.sqlite"
    to.unlink(missing_ok=True)
    with sqlite3.connect(source) as db:
        for change in changes:
            db.executescript(change)
        db.commit()
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA page_size = 512")
        db.execute("VACUUM")
        db.execute("VACUUM INTO ?", (str(to),))
    print(f"{name}: {to.stat().st_size} bytes")


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    CORPUS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)

        def run(program, *arguments):
            subprocess.run([programs / program, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, cwd=scratch)

        def searched(name, budget):
            run("adamk-search", "run", "m.dag.json", "--db", name, "--simulate", "--budget", budget, "--quiet")
            return scratch / name

        (scratch / "config.json").write_text(json.dumps(MODEL))
        run("adamk-dag", "build", "--model", "config.json", "--target", "l20", "--context", 16, "-o", "m.dag.json")
        empty = "".join(f"DELETE FROM {t};" for t in (
            "candidates", "runs", "measurements", "verdicts", "kernels", "plans", "deployments", "models", "devices"))
        write(searched("empty.db", 1), "empty", empty)
        write(searched("losing.db", 1), "losing_plans", empty, "ALTER TABLE plans ADD COLUMN x INTEGER CHECK (x IS NOT NULL);")
        write(searched("simulated.db", 3), "simulated")
        measured = """
            UPDATE devices SET driver = '13.0', toolkit = '13.0', read_gbps = 780;
            UPDATE runs SET method = 'cupti', weights = 'random 1', best_plan_id = 2, ended_at = started_at;
            INSERT INTO kernels VALUES (1, 'a', 'b', 'sm_89', 96, 0, 320, 9000, 4000, 1.5, '{"instructions": 12}');
            INSERT INTO verdicts VALUES (1, 'certificate', 3, 64, 1, 0.01, 0.02);
            UPDATE measurements SET samples = '[3.5,4,3]', counters = '{"dram__bytes_read.sum": 2.1e6}', ceiling_gbps = 780;
            UPDATE candidates SET kernel_id = 1, verdict_id = 1 WHERE status = 'ok';"""
        write(searched("measured.db", 4), "measured", measured,
              "UPDATE candidates SET status = 'timeout', message = 'SM 1', measurement_id = NULL WHERE id = 1;")
        old = """
            DROP VIEW results; ALTER TABLE kernels DROP COLUMN ptx_statistics; ALTER TABLE candidates DROP COLUMN reused_from;
            PRAGMA user_version = 1;"""
        write(searched("version1.db", 1), "version1", old)


main()
