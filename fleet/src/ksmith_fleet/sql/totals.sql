-- The whole fleet: what all hosts together hold and save now, and the frames that only a host for all guests would save besides.
WITH per_content AS (
    SELECT
        fingerprint,
        SUM(pages) AS pages,
        GREATEST(COUNT(*) FILTER (guests > 0) - 1, 0) AS across,
        SUM(apart - CAST(CEIL(pages / settings.max_sharing) AS BIGINT)) AS joined,
        SUM(deviation) AS deviation
    FROM on_host CROSS JOIN settings
    GROUP BY fingerprint
)
SELECT
    COUNT(*) AS contents,
    COALESCE(SUM(pages), 0) AS pages,
    COALESCE(SUM(joined), 0) AS joined,
    COALESCE(SUM(POWER(deviation + joined, 2)), 0) AS squares,
    COALESCE(SUM(across), 0) AS across,
    COALESCE(SUM(across * across), 0) AS across_squares
FROM per_content
