-- What each host's guests share: the contents of several guests, and the frames that remain once KSM has merged them.
WITH framed AS (
    SELECT samples.*, CAST(CEIL(samples.copies / settings.max_sharing) AS BIGINT) AS frames FROM samples CROSS JOIN settings
),
per_content AS (
    SELECT
        host,
        fingerprint,
        COUNT(*) FILTER (copies > 0) AS guests,
        SUM(copies) AS pages,
        SUM(frames) AS apart,
        SUM(COALESCE(residual - frames, 0)) AS deviation
    FROM framed
    GROUP BY host, fingerprint
),
joined AS (
    SELECT
        host,
        GREATEST(guests - 1, 0) AS shared,
        apart - CAST(CEIL(pages / settings.max_sharing) AS BIGINT) AS joined,
        deviation
    FROM per_content CROSS JOIN settings
)
SELECT
    host,
    SUM(shared) AS shared,
    SUM(shared * shared) AS shared_squares,
    SUM(joined) AS joined,
    SUM(POWER(deviation + joined, 2)) AS squares
FROM joined
GROUP BY host
