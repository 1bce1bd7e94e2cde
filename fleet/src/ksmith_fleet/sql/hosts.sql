-- What each host's guests hold together: pages, and the frames that remain once KSM has merged them.
WITH per_content AS (
    SELECT host, fingerprint, COUNT(*) AS guests, SUM(copies) AS pages
    FROM samples
    WHERE copies > 0
    GROUP BY host, fingerprint
)
SELECT
    per_content.host,
    COUNT(*) AS contents,
    SUM(per_content.pages) AS pages,
    SUM(per_content.guests - 1) AS shared,
    SUM(CAST(FLOOR((per_content.pages + settings.max_sharing - 1) / (1.0 * settings.max_sharing)) AS BIGINT)) AS frames,
    SUM(CAST(POWER(FLOOR((per_content.pages + settings.max_sharing - 1) / (1.0 * settings.max_sharing)), 2) AS BIGINT))
        AS frames2
FROM per_content CROSS JOIN settings
GROUP BY per_content.host
