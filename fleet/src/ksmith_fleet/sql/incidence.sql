-- Which guest holds which shared content, and with how many copies, and with what deviation from its mean.
WITH fetched AS (
    SELECT samples.* FROM samples CROSS JOIN settings
    WHERE samples.copies > 0 AND (samples.fingerprint & settings.incidence_mask) = 0
),
shared AS (
    SELECT fingerprint FROM fetched GROUP BY fingerprint HAVING COUNT(*) >= 2
)
SELECT fetched.guest, fetched.fingerprint, fetched.copies, CAST(COALESCE(fetched.residual - fetched.frames, 0) AS FLOAT) AS deviation
FROM fetched SEMI JOIN shared ON fetched.fingerprint = shared.fingerprint
