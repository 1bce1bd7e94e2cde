-- What each host's guests hold together: pages, the frames that remain once KSM has merged them, and what guests share.
WITH per_content AS (
    SELECT host, fingerprint, COUNT(*) FILTER (copies > 0) AS guests, SUM(copies) AS pages, SUM(residual) AS residual
    FROM samples
    GROUP BY host, fingerprint
),
framed AS (
    SELECT
        per_content.*,
        GREATEST(guests - 1, 0) AS shared,
        CAST(CEIL(pages / settings.max_sharing) AS BIGINT) AS frames
    FROM per_content CROSS JOIN settings
)
SELECT
    host,
    SUM(pages) AS pages,
    SUM(shared) AS shared,
    SUM(shared * shared) AS shared_squares,
    SUM(frames) AS frames,
    SUM(POWER(residual - frames, 2)) AS squares
FROM framed
GROUP BY host
