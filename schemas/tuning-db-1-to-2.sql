-- Version 2 remembers which candidates were taken over from an earlier run, keeps PTX statistics, and has the flat view.
ALTER TABLE kernels ADD COLUMN ptx_statistics TEXT;
ALTER TABLE candidates ADD COLUMN reused_from INTEGER REFERENCES candidates(id);
CREATE INDEX candidates_by_plan ON candidates(plan_id);
CREATE VIEW results AS
SELECT c.id AS candidate, r.id AS run, d.key AS deployment, p.hash AS plan, v.name AS device, v.sm, v.sms, v.driver, v.toolkit,
       r.method, r.strategy, r.tool_version, c.status, c.message, m.median_us AS us, m.p10_us, m.p90_us,
       m.bytes_per_token / m.median_us / 1000 AS gbps, m.ceiling_gbps,
       100 * m.bytes_per_token / m.median_us / 1000 / nullif(m.ceiling_gbps, 0) AS percent,
       k.registers, k.smem_bytes, c.reused_from, c.evaluated_at
FROM candidates c JOIN runs r ON r.id = c.run_id JOIN deployments d ON d.id = r.deployment_id
     JOIN plans p ON p.id = c.plan_id JOIN devices v ON v.id = r.device_id
     LEFT JOIN measurements m ON m.id = c.measurement_id LEFT JOIN kernels k ON k.id = c.kernel_id;
PRAGMA user_version = 2;
