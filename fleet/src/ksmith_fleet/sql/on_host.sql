-- What each host holds of each content: a view that other questions read.
SELECT
    host,
    fingerprint,
    COUNT(*) FILTER (copies > 0) AS guests,
    SUM(copies) AS pages,
    SUM(frames) AS apart,
    SUM(COALESCE(residual - frames, 0)) AS deviation
FROM samples
GROUP BY host, fingerprint
