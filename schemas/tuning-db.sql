-- The tuning database, version 2 (docs/tuning-database.md). application_id marks the file as adamk's; user_version is the
-- schema version. Older files are brought up by schemas/tuning-db-<from>-to-<to>.sql when they are opened.
PRAGMA application_id = 1633971563;  -- 'admk'
PRAGMA user_version = 2;

CREATE TABLE devices (
  id           INTEGER PRIMARY KEY,
  fingerprint  TEXT NOT NULL UNIQUE,   -- hash over name, sm, sms, driver, toolkit
  name         TEXT NOT NULL,
  sm           INTEGER NOT NULL,
  sms          INTEGER NOT NULL,
  driver       TEXT NOT NULL,          -- '' for a simulation
  toolkit      TEXT NOT NULL,          -- NVRTC version, or the cost model's
  memory_bytes INTEGER NOT NULL,
  clock_mhz    REAL NOT NULL,
  read_gbps    REAL NOT NULL,          -- probed ceiling, the latest; 0: unknown
  hop_us       REAL NOT NULL
) STRICT;

CREATE TABLE models (
  id   INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,           -- over json
  family TEXT NOT NULL,
  json TEXT NOT NULL                   -- model_to_json
) STRICT;

CREATE TABLE deployments (
  id       INTEGER PRIMARY KEY,
  key      TEXT NOT NULL UNIQUE,       -- Deployment::key
  model_id INTEGER NOT NULL REFERENCES models(id),
  target   TEXT NOT NULL,              -- name of the target
  weights  TEXT NOT NULL,              -- bf16, fp16
  context  INTEGER NOT NULL,
  json     TEXT NOT NULL               -- deployment_to_json
) STRICT;

CREATE TABLE plans (
  id   INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,           -- Plan::hash
  json TEXT NOT NULL                   -- plan_to_json
) STRICT;

CREATE TABLE runs (
  id            INTEGER PRIMARY KEY,
  deployment_id INTEGER NOT NULL REFERENCES deployments(id),
  device_id     INTEGER NOT NULL REFERENCES devices(id),
  method        TEXT NOT NULL CHECK (method IN ('simulated', 'cupti', 'events')),
  strategy      TEXT NOT NULL,         -- beam, exhaustive, eval
  seed          INTEGER NOT NULL,
  budget        TEXT NOT NULL,         -- '60s', '200'
  weights       TEXT NOT NULL,         -- identity of the weights used for verification; '' when none
  tool_version  TEXT NOT NULL,
  command_line  TEXT NOT NULL,         -- of the latest start
  state         TEXT NOT NULL CHECK (state IN ('running', 'interrupted', 'completed')),
  ended_by      TEXT NOT NULL DEFAULT '',
  best_plan_id  INTEGER REFERENCES plans(id),
  started_at    TEXT NOT NULL,         -- UTC, ISO 8601
  ended_at      TEXT,
  UNIQUE (deployment_id, device_id, method, strategy, seed, budget, weights, tool_version)
) STRICT;

CREATE TABLE kernels (
  id              INTEGER PRIMARY KEY,
  source_hash     TEXT NOT NULL,
  cubin_hash      TEXT NOT NULL,
  arch            TEXT NOT NULL,
  registers       INTEGER NOT NULL,
  spill_bytes     INTEGER NOT NULL,
  threads         INTEGER NOT NULL,
  smem_bytes      INTEGER NOT NULL,    -- dynamic shared memory per block
  code_bytes      INTEGER NOT NULL,
  compile_seconds REAL NOT NULL,
  ptx_statistics  TEXT                 -- JSON, when collected
) STRICT;

CREATE TABLE verdicts (
  id          INTEGER PRIMARY KEY,
  certificate TEXT NOT NULL,           -- the validator's verdict on the tile DAG
  positions   INTEGER NOT NULL,        -- positions whose logits were compared
  tokens      INTEGER NOT NULL,        -- greedy tokens compared
  near_ties   INTEGER NOT NULL,
  max_error   REAL NOT NULL,           -- of the logits: relative L2, the worst step
  tolerance   REAL NOT NULL
) STRICT;

CREATE TABLE measurements (
  id              INTEGER PRIMARY KEY,
  samples         TEXT NOT NULL,       -- JSON array, us per token, in the order they were taken
  median_us       REAL NOT NULL,
  p10_us          REAL NOT NULL,
  p90_us          REAL NOT NULL,
  bytes_per_token REAL NOT NULL,       -- weights and KV that must be read
  ceiling_gbps    REAL NOT NULL,       -- read ceiling of the same device
  clock_mhz       REAL NOT NULL,
  temperature_c   REAL NOT NULL,
  throttled       INTEGER NOT NULL,    -- samples discarded
  counters        TEXT NOT NULL        -- JSON object by metric name
) STRICT;

-- One row per plan tried in a run. status says how it ended, message why when not ok.
CREATE TABLE candidates (
  id             INTEGER PRIMARY KEY,
  run_id         INTEGER NOT NULL REFERENCES runs(id),
  ordinal        INTEGER NOT NULL,     -- place in the run's proposals
  plan_id        INTEGER NOT NULL REFERENCES plans(id),
  status         TEXT NOT NULL CHECK (status IN ('ok', 'infeasible', 'rejected', 'compile_error', 'spills',
                                                 'wrong_result', 'timeout', 'crashed')),
  message        TEXT NOT NULL,
  kernel_id      INTEGER REFERENCES kernels(id),
  verdict_id     INTEGER REFERENCES verdicts(id),
  measurement_id INTEGER REFERENCES measurements(id),
  reused_from    INTEGER REFERENCES candidates(id),  -- an earlier run on the same device had tried it
  evaluated_at   TEXT NOT NULL,
  UNIQUE (run_id, plan_id)
) STRICT;
CREATE INDEX candidates_by_plan ON candidates(plan_id);

-- What people ask most, flat. us, GB/s and share of the read ceiling as adamk-db prints them.
CREATE VIEW results AS
SELECT c.id AS candidate, r.id AS run, d.key AS deployment, p.hash AS plan, v.name AS device, v.sm, v.sms, v.driver, v.toolkit,
       r.method, r.strategy, r.tool_version, c.status, c.message, m.median_us AS us, m.p10_us, m.p90_us,
       m.bytes_per_token / m.median_us / 1000 AS gbps, m.ceiling_gbps,
       100 * m.bytes_per_token / m.median_us / 1000 / nullif(m.ceiling_gbps, 0) AS percent,
       k.registers, k.smem_bytes, c.reused_from, c.evaluated_at
FROM candidates c JOIN runs r ON r.id = c.run_id JOIN deployments d ON d.id = r.deployment_id
     JOIN plans p ON p.id = c.plan_id JOIN devices v ON v.id = r.device_id
     LEFT JOIN measurements m ON m.id = c.measurement_id LEFT JOIN kernels k ON k.id = c.kernel_id;
